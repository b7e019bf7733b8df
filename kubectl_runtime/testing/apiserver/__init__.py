"""The sans-I/O core of the embedded API server: request in, response or event stream out; the clock is injected.

Where things are, in the order in which a request meets them (``core``, `ApiCore.handle`, is the way through):

=====================================================  =================================================================
``wire``                                               requests, responses and streams, as rim and core exchange them
``route``, ``context``                                 what a path asks for; the request as handlers see it
``access``                                             who asks, and whether he may: 401 and 403, RBAC, reviews
``discovery``, ``openapi``, ``health``                 what the server tells of itself
``negotiation``, ``forms``, ``table``, ``jsonpath``    the form of the answer: JSON, YAML, metadata only, table rows
``options``, ``delete_options``, ``selectors``,        what the query says
``paging``, ``gonumbers``
``body``, ``yaml_body``, ``gojson``,                   from a body to an object, or to the object after a patch
``field_validation``, ``patching``
``handlers``                                           one module for each family of verbs and for special subresources
``writes``                                             what creates, updates and patches share, up to the stored version
``errors``                                             every refusal
=====================================================  =================================================================

What holds for which object, and where objects are:

=====================================================  =================================================================
``metadata``, ``metadata_checks``, ``names``           rules for every kind
``strategy``                                           the hooks with which a kind has rules of its own
``kinds``                                              the built-in kinds: catalogue, rules, typed shapes, table columns
``crds``, ``crd_names``                                the controller that serves what CustomResourceDefinitions define
``crd_strategy``, ``crd_validation``,                  the kind CustomResourceDefinition
``crd_conversion``
``custom``                                             custom resources themselves
``schemas``                                            shapes of built-in and custom values: pruning, defaults, checks
``managedfields``                                      who owns which field; server-side apply
``jsonvalues``                                         copies and equality of JSON values
``registry``, ``storage``                              which types are served; the objects and their history
``controllers``                                        what a cluster's controllers do, run by the core on its clock
=====================================================  =================================================================

The rim (``testing/http``) and the simulation know ``wire`` and `ApiCore`; nothing here knows them.
"""
