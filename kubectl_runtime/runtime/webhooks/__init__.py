"""What serves webhooks to an API server, and tells it to call them.

    webhook_server          `WebhookServer`: starts, stops, renews
    webhook_listener        connections: TLS, deadlines, how many
    request_handler         the requests of one connection
    serving_certificates    `SelfSigned`, or files that are followed
    ca_bundles              keeps our authority in everything that names us
    apply_webhooks          the configurations, applied
"""
