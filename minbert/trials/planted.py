"""Exercises in which nobody writes a function: a program is given that runs and is wrong, and the mistake is to be found."""

# exercise -> the beginning of what is said of the mistake in its table
PLANTED = {
    "attention.merge": "The tensor is reshaped to (T, D) at once.",
    "bijections.unnorm": "The shift is undone before the stretch;",
    "bijections.unshuffle": "The same order is applied once more;",
    "calibration.spreads": "The column is divided by its variance,",
    "encoder.add_norm": "The norm comes before the sum.",
    "encoder.pooler": "The tokens of the first sentence are read,",
    "flow.sample": "The temperature multiplies the vectors",
    "geometry.alignment": "The means of the two sides are compared.",
    "heads.linear": "Dropout acts on the logits,",
    "hinge.labels": "Labels of -1 become -3:",
    "losses.similarity": "Large distances are charged in proportion,",
    "metrics.spearman": "argsort says where the smallest stands,",
    "negatives.collision": "A row is paired with itself below the line:",
    "negatives.duplicates": "Only cells right of the diagonal are hidden;",
    "optim.rate": "The repair of v lacks its root:",
    "pretrain.special": "The mask is read as a length.",
    "sentence.first_last": "The embedding is taken for layer 1.",
}
