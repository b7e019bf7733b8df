"""Objects in a program: resource classes, dynamic, partial and invalid objects, owners, conditions."""
