"""Exercise cases, one module for each chapter: inputs, named mistakes, and accepted variants."""
