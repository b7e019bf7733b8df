"""From changes to reconcile requests: watches and their subscribers, predicates, triggers, trigger sources."""
