"""Cases, mistakes and variants of the exercises: one module a group. Found by minbert.course, imported by nobody."""
