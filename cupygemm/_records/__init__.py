"""Records that all layers share: element types, shapes, problems."""
