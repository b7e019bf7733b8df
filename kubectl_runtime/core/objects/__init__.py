"""Objects as programs hold them: resource classes, dynamic, partial and invalid objects, owners, conditions."""
