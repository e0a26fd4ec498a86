"""Exercises in which a program with a mistake is given, and the mistake has to be found."""

# exercise -> the beginning of the sentence of the mistake in its table
PLANTED = {
    "attention.merge": "The tensor is reshaped to (T, D) directly.",
    "bijections.unnorm": "The shift is undone before the scale.",
    "bijections.unshuffle": "The permutation is applied again.",
    "whitening.spreads": "The square root is missing:",
    "encoder.add_norm": "The layer normalization comes before the addition.",
    "encoder.pooler": "The tokens of the first sentence are used",
    "flow.sample": "The temperature multiplies the generated vectors.",
    "geometry.alignment": "The means of the two sides are compared.",
    "heads.linear": "Dropout is applied to the logits.",
    "losses.signs": "Labels of -1 become -3.",
    "losses.similarity": "This is the Huber loss,",
    "metrics.spearman": "`argsort` returns the indices",
    "negatives.collision": "A row is paired with itself in the denominator,",
    "negatives.duplicates": "Only cells above the diagonal are masked.",
    "pretrain.special": "The mask is used as a length.",
    "sampling.shares": "The powers are divided by the sum of the sizes,",
}
