"""What serves webhooks to an API server, and tells it to call them.

    webhook_server          `WebhookServer`: starts, stops, renews
    serving_certificates    `SelfSigned`, or files that are followed
    ca_bundles              keeps our authority in everything that names us
    apply_webhooks          the configurations, applied
    webhook_setup           ... by a server at its start
"""
from kubectl_runtime.runtime.webhooks.apply_webhooks import apply_webhooks as apply_webhooks
from kubectl_runtime.runtime.webhooks.serving_certificates import SelfSigned as SelfSigned
from kubectl_runtime.runtime.webhooks.webhook_server import WebhookServer as WebhookServer
