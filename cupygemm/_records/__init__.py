"""Records that every layer shares: types of elements, shapes, problems."""
