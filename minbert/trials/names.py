"""How the renaming of released weights is checked, the last exercise of chapter 04."""


import torch

from minbert.course.comparing import TEXT, from_text
from minbert.course.trials import Case, Trial, mistake


# A name that is renamed wrongly is a weight that is missing, or one in the wrong place. Which names show it?
#
# Those that nearly fit.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- encoder.rename
#
# A small table with the traps of the real one: a left side that ends like another, one that begins like another, a dot that must be a dot, layers
# with two digits. Names with a blank, a line break, a capital, or a number that only looks like one are refused; a digit elsewhere in the table is no
# layer, and a number that the table itself has is none either. The result is a text, so its place in a list of names is compared; a name that is refused counts as -1. Which words the error uses does not
# matter, only its kind.

TABLE = {"out_dense": "output.dense", "layers.{}.out_dense": "layer.{}.output.dense", "layers.{}.attention_dense": "layer.{}.attention.output.dense",
         "layers.{}.out_dense_norm": "layer.{}.output.norm", "words": "embeddings.words", "layers.{}.self.query": "layer.{}.attention.self.query"}


def rename_cases(generator):
    n = int(torch.randint(2, 9, (1,), generator=generator))
    right = {"words.weight": "embeddings.words.weight", "out_dense.bias": "output.dense.bias"}
    for layer in (0, n, 10 + n, 100 + n):
        for left, side in ((left, side) for left, side in TABLE.items() if "{" in left):
            right |= {f"{left.format(layer)}.{kind}": f"{side.format(layer)}.{kind}" for kind in ("weight", "bias")}
    one = f"layers.{n}"
    wrong = ["words", "weight", "words.weights", "layers.weight", "layers.x.out_dense.bias", "layers..out_dense.bias", f"{one}.out_dense",
             f"{one}.out_dense.gamma", f"old.{one}.out_dense.bias", f"{one}.out_dense.bias.more", f"{one}.out_denses.bias", f"{one}.self_query.weight",
             f"{one}xself.query.weight", f"layers.0{n}.out_dense.bias", f"layers.-{n}.out_dense.bias", "wordsxweight", "",
             "words.weight\n", " words.weight", "words.weight ", "WORDS.weight", f"Layers.{n}.out_dense.bias", f"layers.+{n}.out_dense.bias",
             f"layers. {n}.out_dense.bias", f"layers.{n}_0.out_dense.bias", "layers.\u00b2.out_dense.weight", f"layers.{n}\u0663.out_dense.weight"]
    chosen = [f"{one}.out_dense.bias", f"layers.{10 + n}.attention_dense.weight", "words.weight", "out_dense.bias", f"{one}.out_dense_norm.weight"]
    order = torch.randperm(len(right), generator=generator).tolist()    # an answer is told by its place, which nobody can know before
    shuffled = lambda names: [names[i] for i in order]
    shared = {"table": TABLE, "answers": shuffled(list(right.values()))}
    digits = {"table": {"layers.{}.fc1": "layer.{}.first", "layers.{}.fc2": "layer.{}.second"},
              "answers": [f"layer.{layer}.{side}.weight" for layer in (1, 2, 12) for side in ("first", "second")]}
    written = {"table": {f"blocks.{n}.norm": "norm", "words": "embeddings.words"}, "answers": ["embeddings.words.bias", "norm.weight", "norm.bias"]}
    return [*(Case(f"the name {name!r}", {"names": [name], **shared}) for name in chosen),
            Case("a number that stands in the table", {"names": [f"blocks.{n}.norm.weight", f"blocks.{n + 1}.norm.weight", f"blocks.{n}.norm.bias"], **written}),
            Case("all names that the table has", {"names": list(right), **shared}),
            Case("a table with digits", {"names": [f"layers.{layer}.fc{i}.weight" for layer in (1, 2, 12) for i in (1, 2)], **digits}),
            Case("the other way round", {"names": list(right.values()), "table": {b: a for a, b in TABLE.items()}, "answers": shuffled(list(right))}),
            *(Case(f"{name!r}, which fits nowhere", {"names": [name], **shared}) for name in wrong)]


def run_rename(rename, inputs):
    def place(name):
        try:
            new = rename(name, inputs["table"])
        except ValueError:
            return -1
        return inputs["answers"].index(new) if new in inputs["answers"] else 1000 + sum(map(ord, str(new)))

    def text(name):
        try:
            return str(rename(name, inputs["table"]))
        except ValueError:
            return "a ValueError"

    before = dict(inputs["table"])
    if len(inputs["names"]) == 1:
        return {f"{TEXT}the new name": from_text(text(inputs["names"][0])), "the table is as it was": inputs["table"] == before}
    return {"place in the list of right names, -1 for ValueError": torch.tensor([place(name) for name in inputs["names"]]),
            "the table is as it was": inputs["table"] == before}


TRIALS["encoder.rename"] = Trial(rename_cases, run_rename, hints=(
    "Compare whole names. What begins or ends alike may be another tensor.",
    "Make a regular expression of each left side: re.escape it, put (0|[1-9][0-9]*) where {} was, let \\.(weight|bias) follow, and use re.fullmatch.",
    "The groups of the match are the number, if there is one, and the ending. right.format(number) + '.' + ending is the answer; after the loop "
    "raise ValueError."))


_WRONG_MATCH = r'pattern = re.escape(left).replace(r"\{\}", r"(0|[1-9][0-9]*)") + r"\.(weight|bias)"'
_WRONG_END = 'raise ValueError(f"expected the name of a tensor of BERT, got {name!r}")'
_WRONG_DIGITS = """*words, kind = name.split(".")
    numbers = [w for w in words if w.isdigit() and (w == "0" or w[0] != "0")]
    general = ".".join("{}" if w in numbers else w for w in words)
    if general in table and kind in ("weight", "bias"):
        return f"{table[general].format(*numbers)}.{kind}"
    for left, right in table.items():"""
_WRONG_LITERAL = r"""*words, kind = name.split(".")
    numbers = [w for w in words if re.fullmatch("0|[1-9][0-9]*", w)]
    general = ".".join("{}" if w in numbers else w for w in words)
    if general not in table or kind not in ("weight", "bias"):
        raise ValueError(name)
    return f"{table[general].format(*numbers)}.{kind}"
    for left, right in table.items():"""
_WRONG_EVERYWHERE = r"""stem, _, kind = name.rpartition(".")
    if number := re.search(r"\.(0|[1-9][0-9]*)\.", stem):
        general = stem.replace(number[1], "{}")
        if general not in table or kind not in ("weight", "bias"):
            raise ValueError(name)
        return f"{table[general].format(number[1])}.{kind}"
    for left, right in table.items():"""

MISTAKES["encoder.rename"] = [
    mistake("re.fullmatch(pattern, name)", "re.match(pattern, name)", "Only the beginning of a name has to fit, so longer names pass."),
    mistake("re.fullmatch(pattern, name)", 're.search(pattern + "$", name)',
            "Only the end of a name has to fit, so other tensors that end alike are taken for it."),
    mistake(r"(0|[1-9][0-9]*)", r"([0-9])", "The number of a layer has one digit only. BERT has twelve layers."),
    mistake(r"(0|[1-9][0-9]*)", "(.+)", "Anything passes for the number of a layer."),
    mistake(r"(0|[1-9][0-9]*)", r"(0|[1-9]\d*)", r"Digits of other scripts pass for a number: \d finds them too. [0-9] does not."),
    mistake(r"(0|[1-9][0-9]*)", r"(0|[ +]?[1-9][\d_]*)", "right.format(*layer)", "right.format(*map(int, layer))",
            "Whatever int() reads passes for a number, such as +3, 1_0, or 3 after a blank. Two names would then mean one tensor."),
    mistake("re.fullmatch(pattern, name)", 're.match("^" + pattern + "$", name)',
            "A name with a line break at its end passes: $ fits before it as well."),
    mistake("re.fullmatch(pattern, name)", "re.fullmatch(pattern, name.strip())", "Blanks around a name are cut off. Such a name is no tensor of BERT."),
    mistake("re.fullmatch(pattern, name)", "re.fullmatch(pattern, name, re.I)", "Capitals pass for small letters. Two names would then mean one tensor."),
    mistake("for left, right in table.items():", _WRONG_DIGITS,
            "isdigit() says yes to \u00b2 and to digits of other scripts. A layer's number has the digits 0 to 9."),
    mistake("for left, right in table.items():", _WRONG_EVERYWHERE,
            "The number is replaced wherever it stands in the name, so layer 1 spoils a name like fc1."),
    mistake(r"(0|[1-9][0-9]*)", r"([0-9]+)", "A number with leading zeros passes. Two names would then mean one tensor."),
    mistake("re.escape(left).replace(r\"\\{\\}\"", "left.replace(\"{}\"",
            "The dots of the table are not escaped, and in a regular expression a dot is any character."),
    mistake(r'r"\.(weight|bias)"', r'r"\.(\w+)"', "Any ending passes. Only weight and bias are tensors of BERT."),
    mistake(_WRONG_END, "return name", "A name that fits nowhere is given back as it is, and the error comes later, elsewhere."),
    mistake(_WRONG_END, "return None", "A name that fits nowhere gives None. A tensor would be lost without a word."),
    mistake('return f"{right.format(*layer)}.{kind}"', "return right.format(*layer)", "The ending is lost, so weight and bias get one name."),
    mistake("for left, right in table.items():", 'plain = name\n    for left, right in table.items():\n        part = left.split("{}.")[-1]\n'
            '        plain = plain.replace(part, right.split("{}.")[-1])\n    return plain.replace("layers.", "layer.")\n    for left, right in table.items():',
            "Parts of names are replaced one after the other. A part that stands inside another name is hit as well."),
    mistake("for left, right in table.items():", _WRONG_LITERAL, "Every number in a name is taken for that of a layer. Where the table has a number and no {}, the name must have the same number."),
    mistake('return f"{right.format(*layer)}.{kind}"', 'return f"{right}.{kind}"', "{} still stands in the new name. The number of the layer belongs there."),
]

VARIANTS["encoder.rename"] = [
    '''
def rename(name, table):
    stem, _, kind = name.rpartition(".")
    words = stem.split(".")
    numbers = [w for w in words if w.isascii() and w.isdigit() and str(int(w)) == w]
    general = stem if stem in table else ".".join("{}" if w in numbers else w for w in words)
    if general not in table or kind not in ("weight", "bias"):
        raise ValueError(name)
    return table[general].format(*numbers) + "." + kind
''',
    '''
def rename(name, table):
    for left in table:
        head, hole, tail = left.partition("{}")
        for kind in (".weight", ".bias"):
            if not hole and name == left + kind:
                return table[left] + kind
            if hole and name.startswith(head) and name.endswith(tail + kind):
                number = name[len(head):len(name) - len(tail + kind)]
                if number in map(str, range(1000)):
                    return table[left].replace("{}", number) + kind
    raise ValueError("no such tensor: " + name)
''',
]


# ---- How much they catch
