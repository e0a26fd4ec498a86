"""What the map on the first page of the site shows: how the data flow, and the parts of the book."""

FLOW = [
    ("text", "tokens"),
    ("ids (B, T)", "embedding"),
    ("vectors (B, T, D)", "encoder"),
    ("states (B, T, D)", "sentence"),
    ("vector (B, D)", "heads"),
    ("logits (B, C)", "losses"),
    ("loss ()", ""),
]  # what there is, and the chapter that makes the next of it
PARTS = {
    "1_bert": "1. BERT from scratch",
    "2_finetuning": "2. Fine-tuning",
    "3_embeddings": "3. Better embeddings",
    "4_robustness": "4. Robust training",
    "5_results": "5. Results",
    "appendix": "Appendix",
}
