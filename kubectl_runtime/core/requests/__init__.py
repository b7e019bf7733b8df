"""Requests as values: parameters, patches, bodies, and the HTTP request that each verb makes."""
