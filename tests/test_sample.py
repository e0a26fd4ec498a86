"""Every label of the sample derived once more from its text; splits that share nothing; words alone
are not enough.
"""

import csv
import itertools
import random
import re
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from minbert.data import load_dataset
from minbert.datasets import grammar_data
from minbert.datasets.grammar_data import (
    ADJECTIVES,
    FAMILY,
    FRAMES,
    Draws,
    Event,
    ask,
    change,
    draw_event,
    generate_sample,
    graded_pair,
    opinion,
    question_pair,
    sentiment_sentence,
    sign,
    similarity,
    tell,
)

STORED = Path(str(resources.files("minbert") / "assets" / "sample"))
SPLITS = ("train", "dev", "test")
NAMES = {"sst": "ids-sst", "quora": "quora", "stsb": "sts"}


@pytest.fixture(scope="module")
def made():
    return generate_sample()


@pytest.fixture(scope="module")
def sets():
    return {(name, split): load_dataset(name, split) for name in NAMES for split in SPLITS}


# --- the files


def test_the_stored_files_are_what_the_grammar_makes_byte_for_byte(made):
    assert {f.name: f.read_bytes() for f in STORED.iterdir()} == {
        name: text.encode() for name, text in made.items()
    }
    assert set(made) == {f"{stem}-{split}.csv" for stem in NAMES.values() for split in SPLITS}


def test_another_seed_makes_other_rows_of_the_same_kind(made):
    other = generate_sample(seed=3)
    assert set(other) == set(made)
    for name in made:
        rows, others = made[name].splitlines(), other[name].splitlines()
        assert rows[0] == others[0] and len(rows) == len(others)
        assert len(set(rows) & set(others)) < len(rows) // 10


def test_counts_and_kinds(sets):
    for name, kind, rows in (
        ("sst", "sentiment", 2000),
        ("quora", "paraphrase", 2000),
        ("stsb", "similarity", 1000),
    ):
        assert (
            len(sets[name, "train"]) >= rows
            and len(sets[name, "dev"]) >= 200
            and len(sets[name, "test"]) >= 200
        )
        assert {sets[name, split].kind for split in SPLITS} == {kind} and not any(
            sets[name, split].skipped for split in SPLITS
        )
    for split in SPLITS:
        assert len(set(Counter(sets["sst", split].labels).values())) == 1 and set(
            sets["sst", split].labels
        ) == set(range(5))
        assert 0.3 < np.mean(sets["quora", split].labels) < 0.5
        assert (
            min(sets["stsb", split].labels) == 0
            and max(sets["stsb", split].labels) == 5
            and np.std(sets["stsb", split].labels) > 1.2
        )


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_no_sentence_and_no_row_comes_twice(sets, name):
    texts = {
        split: {*sets[name, split].sentences, *(sets[name, split].sentences2 or [])}
        for split in SPLITS
    }
    for one, two in itertools.combinations(SPLITS, 2):
        assert not texts[one] & texts[two]
        assert not {t.lower().strip(" .?") for t in texts[one]} & {
            t.lower().strip(" .?") for t in texts[two]
        }
    for split in SPLITS:
        d = sets[name, split]
        rows = list(zip(*(c for c in (d.sentences, d.sentences2) if c)))
        assert len({tuple(sorted(row)) for row in rows}) == len(rows) == len(set(d.ids))
        # never a sentence with itself
        assert all(len(set(row)) == len(row) for row in rows)
        assert all(
            t == " ".join(t.split()) and t[0].isupper() and t[-1] in ".?"
            for row in rows
            for t in row
        )


def test_the_files_are_plain_tab_separated_rows(made):
    for name, text in made.items():
        rows = list(csv.reader(text.splitlines(), delimiter="\t"))
        assert (
            rows[0][:2] == ["", "id"]
            and rows[0][-1] == {"i": "sentiment", "q": "is_duplicate", "s": "similarity"}[name[0]]
        )
        assert [row[0] for row in rows[1:]] == [str(i) for i in range(len(rows) - 1)]
        assert all(
            row[1] == f"{name[:-4]}-{row[0]}" and len(row) == len(rows[0]) for row in rows[1:]
        )
        assert "\r" not in text and text.isascii()


# --- sentiment, from the words alone

STRENGTH = {word: s for s, words in ADJECTIVES.items() for word in words}
# words before the adjective -> strength of the phrase, given the sign of the adjective
MODIFIERS = {
    "very|really|extremely|truly|nothing short of": 2,
    "rather|fairly|somewhat": 1,
    "not|hardly|by no means|not very|not exactly": -1,
    "anything but|far from|the opposite of": -2,
}
PHRASE = rf"((?:(?:{'|'.join(MODIFIERS)}) )*)({'|'.join(STRENGTH)})\b"
NEUTRAL = (
    r"mentioned in|has not seen|^I read about|talked about|^Nobody told|^The poster|^Someone asked|did not say|was neither|"
    r"^We will go|^I cannot tell|asked on"
)


def strengths(text: str) -> list[int]:
    found = []
    for before, adjective in re.findall(PHRASE, text):
        before, s = before.strip(), STRENGTH[adjective]
        found.append(
            s
            if not before
            else next(f for words, f in MODIFIERS.items() if before in words.split("|"))
            * (1 if s > 0 else -1)
        )
    return found


def judge(text: str) -> int:
    """The strength of a sentence, -2 to 2, by rules written without a look at the grammar's code."""
    if re.search(NEUTRAL, text):
        return 0
    if found := re.search(r"^(This|The last) \w+ is (much )?(better|worse) than", text):
        return (1 if (found[1] == "This") == (found[3] == "better") else -1) * (
            2 if found[2] else 1
        )
    found = strengths(text)
    if re.search(r"I disagree|who is wrong|^It is not true", text):
        return -1 if found[0] > 0 else 1
    if len(found) == 1:
        return found[0]
    first, second = found
    if re.search(r"^I expected|at first and became", text):
        return second
    if "though it looked" in text:
        return first
    # the clause that is granted does not count
    main = second if re.search(r", but the|^Although", text) else first
    return 1 if main > 0 else -1


@pytest.mark.parametrize("split", SPLITS)
def test_every_sentiment_follows_from_its_text(sets, split):
    d = sets["sst", split]
    assert [judge(text) + 2 for text in d.sentences] == d.labels


def test_sentiment_by_hand():
    for text, strength in (
        ("The film was wonderful.", 2),
        ("The film was not wonderful.", -1),
        ("The film was far from good.", -2),
        ("The film was not very bad.", None),
        ("To me the plot seemed rather dreadful.", -1),
        ("Although the plot is weak, the acting is superb.", 1),
        ("The acting is superb, although the plot is weak.", 1),
        ("The plot is superb, but the acting is weak.", -1),
        ("My critic called the film superb, and I disagree.", -1),
    ):
        assert (judge(text) if strength else strengths(text)) == (strength or [])


def test_opinions_have_the_sign_asked_for_and_the_strength_of_their_words():
    draws, seen = Draws(1), Counter()
    for i in range(4000):
        want = (-1, 1)[i % 2]
        phrase, s = opinion(draws, want)
        assert strengths(phrase) == [s] and sign(s) == want
        seen[phrase.rsplit(" ", 1)[0] if " " in phrase else ""] += 1
        seen[s] += 1
    assert (
        set(seen) == {"", -2, -1, 1, 2} | set("|".join(MODIFIERS).split("|"))
        and min(seen.values()) > 20
    )
    assert [sign(x) for x in (-3, 0, 0.5)] == [-1, 0, 1]


def test_every_pattern_of_the_grammar_is_in_the_sample(sets):
    texts = [text for split in SPLITS for text in sets["sst", split].sentences]
    for ways, _ in grammar_data.PATTERNS:
        for way in ways:
            shape = re.sub(r"\\?\{\w\\?\}", ".+", re.escape(way))
            assert any(re.fullmatch(shape, text) for text in texts), way


# --- questions, from every question the grammar can ask

CANON = {
    "inexpensive": "cheap",
    "fastest": "quickest",
    "simplest": "easiest",
    "study": "learn",
    "start": "begin",
    "purchase": "buy",
    "select": "choose",
    "permitted": "allowed",
    "journey": "trip",
    "hard": "difficult",
    "cost": "price",
    "position": "job",
    "arguments": "reasons",
}


def plain(text: str) -> str:
    return " ".join(CANON.get(word, word) for word in re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="module")
def meanings() -> dict[str, tuple]:
    """Plain text of each question -> (number of the frame, slots); slots that may change places are
    sorted.
    """

    def pairs(words):
        return list(itertools.permutations(words, 2))

    choices = [p for group in grammar_data.CHOICES for p in pairs(group)]
    turns = [x for a, b, c in grammar_data.CHANGES for x in ((a, b, c), (b, a, c))]
    slots = [
        pairs(grammar_data.UNITS),
        pairs(grammar_data.CITIES),
        choices,
        [(*p, *v) for p in pairs(grammar_data.PEOPLE) for v in grammar_data.VERBS],
        pairs(grammar_data.CAUSES),
        pairs(grammar_data.ROUTINES),
        turns,
        [(h, *w) for h in grammar_data.HABITS for w in (("", "good"), ("not ", "bad"))],
        list(itertools.product(grammar_data.GOODS, grammar_data.CITIES)),
        list(itertools.product(grammar_data.JOBS, grammar_data.CITIES)),
        choices,
        pairs(grammar_data.CITIES),
        choices,
    ]
    symmetric, found = {10, 11, 12}, {}
    assert len(slots) == len(FRAMES)
    for number, (frame, options) in enumerate(zip(FRAMES, slots)):
        for way, option in itertools.product(frame.ways, options):
            meaning = (number, *(sorted(option) if number in symmetric else option))
            assert found.setdefault(plain(way.format(*option)), meaning) == meaning, (
                "one question, two meanings"
            )
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_two_questions_are_duplicates_if_they_mean_the_same(sets, meanings, split):
    d = sets["quora", split]
    assert [
        int(meanings[plain(a)] == meanings[plain(b)]) for a, b in zip(d.sentences, d.sentences2)
    ] == d.labels


def test_questions_cover_every_frame_both_ways(sets, meanings):
    d = sets["quora", "train"]
    frames = Counter((meanings[plain(a)][0], y) for a, y in zip(d.sentences, d.labels))
    assert (
        set(frames) == set(itertools.product(range(len(FRAMES)), (0, 1)))
        and min(frames.values()) >= 10
    )


def test_question_pairs_of_another_seed_follow_the_definition_too(meanings):
    draws = Draws(99)
    for _ in range(2000):
        a, b, y = question_pair(draws)
        assert (meanings[plain(a)] == meanings[plain(b)]) == y


def test_synonyms_change_the_words_and_not_the_meaning():
    draws = Draws(5)
    texts = {
        ask(draws, "where do I begin to buy a {0}, and is it hard?", ("boat",)) for _ in range(200)
    }
    assert len(texts) == 8 and {plain(t) for t in texts} == {
        "where do i begin to buy a boat and is it difficult"
    }
    assert all(t.startswith("Where do I ") and t.endswith("?") and " boat, " in t for t in texts)


# --- graded pairs, parsed back into events

WHOLE = {name: noun for noun in FAMILY for name in noun.split("/")}
VERBS = {}  # "chasing" -> (action, True), "chased" -> (action, False)
for _actions in grammar_data.ACTIONS.values():
    for _action in _actions.split("|"):
        for _name in _action.split("/"):
            _doing, _done = _name.replace("-", "_").split(" ")
            VERBS[_doing.replace("_", " ")], VERBS["being " + _done.replace("_", " ") + " by"] = (
                (_action, True),
                (_action, False),
            )
PLACES = {name: place for place in grammar_data.WHERE for name in place.split("/")}
TIMES = {name: time for time in grammar_data.WHEN for name in time.split("/")}


def EITHER(names):
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


TOLD = re.compile(
    rf"(?:(?P<early>{EITHER(TIMES)}) )?an? (?P<left>{EITHER(WHOLE)}) is (?P<no>not )?(?P<verb>{EITHER(VERBS)}) an? "
    rf"(?P<right>{EITHER(WHOLE)})(?: (?P<place>{EITHER(PLACES)}))?(?: (?P<late>{EITHER(TIMES)}))?\."
)


def understand(text: str) -> Event:
    lowered = text[0].lower() + text[1:]
    found = TOLD.fullmatch(lowered) or TOLD.fullmatch(text)
    assert found, text
    action, active = VERBS[found["verb"]]
    left, right = WHOLE[found["left"]], WHOLE[found["right"]]
    time = TIMES.get(found["early"] or found["late"], "")
    return Event(
        *((left, action, right) if active else (right, action, left)),
        PLACES.get(found["place"], ""),
        time,
        bool(found["no"]),
    )


def score(a: Event, b: Event) -> float:
    """The definition once more, in fortieths of a point."""
    who = {True: 50}

    def role(x, y):
        return who.get(x == y, 20 if FAMILY[x] == FAMILY[y] else 0)

    total = (
        60 * (a.action == b.action and a.denied == b.denied)
        + role(a.agent, b.agent)
        + role(a.patient, b.patient)
    )
    if total:
        for x, y in ((a.where, b.where), (a.when, b.when)):
            total += 20 if x == y else 10 if not (x and y) else 0
    return total / 40


@pytest.mark.parametrize("split", SPLITS)
def test_every_similarity_follows_from_the_two_sentences(sets, split):
    d = sets["stsb", split]
    assert [
        score(understand(a), understand(b)) for a, b in zip(d.sentences, d.sentences2)
    ] == pytest.approx(d.labels, abs=0.005001)


def test_an_event_is_told_in_many_ways_that_mean_it():
    draws = Draws(2)
    for _ in range(300):
        event = draw_event(draws)
        assert event.agent != event.patient
        assert all(understand(tell(draws, event)) == event for _ in range(3))
    texts = {
        tell(
            draws,
            Event(
                "dog/hound",
                "chasing chased/pursuing pursued",
                "cat",
                "in the street/on the road",
                "at night",
            ),
        )
        for _ in range(300)
    }
    # dog, chase, street: two names each; active or passive; time first or last
    assert len(texts) == 2 * 2 * 2 * 2 * 2


def test_similarity_is_symmetric_bounded_and_5_for_the_same_event_only():
    draws = Draws(4)
    values = []
    for _ in range(2000):
        a = draw_event(draws)
        b = change(draws, a) if draws.chance(0.7) else draw_event(draws)
        values.append(similarity(a, b))
        assert values[-1] == similarity(b, a) == pytest.approx(score(a, b)) and 0 <= values[-1] <= 5
        assert (values[-1] == 5) == (a == b) and similarity(a, a) == 5
    assert min(values) == 0 and len({round(v, 2) for v in values}) > 15


def test_similarity_by_hand():
    event = Event("dog/hound", "chasing chased/pursuing pursued", "boy/lad", "in the park")
    for other, expected in (
        (event, 5.0),
        (event._replace(denied=True), 3.5),
        (event._replace(agent="cat"), 4.25),
        (event._replace(agent="apple"), 3.75),
        (event._replace(agent="boy/lad", patient="dog/hound"), 2.5),
        (event._replace(where="on the stage"), 4.5),
        (event._replace(where=""), 4.75),
        (event._replace(when="in winter"), 4.75),
        (Event("apple", "peeling peeled", "poem", "in the park"), 0.0),
    ):
        assert similarity(event, other) == pytest.approx(expected)


def test_a_change_touches_one_role_and_every_kind_occurs():
    draws, kinds = Draws(6), Counter()
    for _ in range(3000):
        a = draw_event(draws)
        b = change(draws, a)
        differing = tuple(name for name in Event._fields if getattr(a, name) != getattr(b, name))
        assert len(differing) <= 1 or (
            differing == ("agent", "patient") and (b.agent, b.patient) == (a.patient, a.agent)
        )
        assert FAMILY[b.agent] in grammar_data.LIVING and b.agent != b.patient
        kinds[differing] += 1
    assert set(kinds) == {
        (),
        ("agent",),
        ("action",),
        ("patient",),
        ("where",),
        ("when",),
        ("denied",),
        ("agent", "patient"),
    }
    assert min(kinds.values()) > 50


# --- chance


def test_dice_are_fair_and_the_same_everywhere():
    draws, plain_random = Draws(11711), random.Random(11711)
    assert [draws.random() for _ in range(5)] == [plain_random.random() for _ in range(5)]
    draws, n = Draws(1), 12000
    picked = Counter(draws.pick("abcd") for _ in range(n))
    assert sum((picked[x] - n / 4) ** 2 / (n / 4) for x in "abcd") < 25 and len(picked) == 4
    two = Counter(draws.two("abcd") for _ in range(n))
    assert (
        len(two) == 12
        and all(a != b for a, b in two)
        and sum((k - n / 12) ** 2 / (n / 12) for k in two.values()) < 45
    )
    assert abs(sum(draws.chance(0.3) for _ in range(n)) / n - 0.3) < 0.02


@pytest.mark.parametrize("draw", [sentiment_sentence, question_pair, graded_pair])
def test_rows_depend_on_the_seed_alone(draw):
    one, two = ([draw(draws) for _ in range(50)] for draws in (Draws(8), Draws(8)))
    random.seed(0)
    assert one == two != [draw(Draws(9)) for _ in range(50)]


# --- words alone


def bag_of_words(train, dev):
    """TF-IDF of both splits; for pairs what the bags share, word by word and in sum, and what they
    do not.
    """
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    bag = TfidfVectorizer(token_pattern=r"\w+").fit(train.sentences + (train.sentences2 or []))

    def features(d):
        u = bag.transform(d.sentences)
        if d.sentences2 is None:
            return u
        v = bag.transform(d.sentences2)
        return hstack([u.multiply(v).sum(1), abs(u - v), u.multiply(v)]).tocsr()

    return features(train), np.array(train.labels), features(dev), np.array(dev.labels)


@pytest.mark.parametrize(
    "name, chance, low, high", [("sst", 0.20, 0.55, 0.82), ("quora", 0.60, 0.68, 0.88)]
)
def test_a_bag_of_words_beats_chance_and_can_be_beaten(sets, name, chance, low, high):
    """Measured .70 and .79; the definition scores 1, as the tests above show."""
    from sklearn.linear_model import LogisticRegression

    X, y, X_dev, y_dev = bag_of_words(sets[name, "train"], sets[name, "dev"])
    commonest = Counter(y_dev.tolist()).most_common(1)[0][1] / len(y_dev)
    assert commonest == pytest.approx(chance, abs=0.05)
    assert low < (LogisticRegression(max_iter=3000).fit(X, y).predict(X_dev) == y_dev).mean() < high


def test_a_cosine_of_bags_sees_some_similarity_and_misses_much(sets):
    """Measured Pearson .48 without learning, .67 with weights learned on the training split."""
    from sklearn.linear_model import Ridge

    X, y, X_dev, y_dev = bag_of_words(sets["stsb", "train"], sets["stsb", "dev"])
    cosine = np.asarray(X_dev[:, 0].todense()).ravel()
    assert 0.35 < np.corrcoef(cosine, y_dev)[0, 1] < 0.60
    assert 0.55 < np.corrcoef(Ridge(1.0).fit(X, y).predict(X_dev), y_dev)[0, 1] < 0.80


def test_the_same_words_in_another_order_mean_something_else_often_enough(sets):
    def bag(text):
        return sorted(re.findall(r"\w+", text.lower()))

    d = sets["quora", "train"]
    turned = [y for a, b, y in zip(d.sentences, d.sentences2, d.labels) if bag(a) == bag(b)]
    # so sharing all words is no proof of either
    assert turned.count(0) > 100 and turned.count(1) > 20
    d = sets["stsb", "train"]
    turned = [y for a, b, y in zip(d.sentences, d.sentences2, d.labels) if bag(a) == bag(b)]
    assert sum(y < 4 for y in turned) > 10 and sum(y == 5 for y in turned) > 5


def test_a_frame_never_contradicts_itself():
    quiet = Draws(5)
    quiet.pick = lambda options: options[0]  # no synonyms
    for frame in FRAMES:
        for seed in range(50):
            slots = frame.slots(Draws(seed))
            texts = [ask(quiet, way, slots) for way in frame.ways]
            assert len(set(texts)) == len(frame.ways)
            if frame.twist:
                assert frame.twist(slots) != slots and frame.twist(frame.twist(slots)) == slots
                assert not set(texts) & {ask(quiet, way, frame.twist(slots)) for way in frame.ways}
            assert not (frame.twist and frame.symmetric)
