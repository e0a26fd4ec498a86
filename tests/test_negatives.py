"""Chapter 18: the loss against loops and sentence-transformers, clusters against a slow closure,
collisions by counting, and batches without duplicates.
"""

import math
from collections import Counter
from functools import partial
from itertools import combinations, islice

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.testing import assert_close
from toys import equal, vectors

from minbert.batches import no_duplicate_batches, pair_batches
from minbert.contrastive import simcse_loss
from minbert.encoder import BertConfig, BertModel
from minbert.negatives import clusters, collision_rate, multiple_negatives_loss, score_matrix
from minbert.sentence import SentenceEncoder, safe_cosine
from minbert.simcse import ViewModel, train_views, view_batches, view_loss
from minbert.tokens import load_tokenizer


def naive(S, groups=None, hard=None, symmetric=False):
    """Loops over rows; S (m, m) scaled scores, hard (m, m) too."""
    m, total = len(S), 0
    for i in range(m):
        keep = [j for j in range(m) if j == i or groups is None or groups[j] != groups[i]]
        row = [S[i, j] for j in keep] + ([] if hard is None else list(hard[i]))
        total = total + torch.stack(row).exp().sum().log() - S[i, i]
        if symmetric:
            total = total + torch.stack([S[j, i] for j in keep]).exp().sum().log() - S[i, i]
    return total / m / (2 if symmetric else 1)


# ---- the loss


@pytest.mark.parametrize("m", [2, 5, 16])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_equals_sentence_transformers(given, m, scale):
    a, p, h = vectors(m, count=3, seed=m)
    both_ways = dict(directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")
    for symmetric, options in ((False, {}), (True, both_ways)):
        judge = MultipleNegativesRankingLoss(given, scale=scale, **options)
        equal(
            multiple_negatives_loss(a, p, scale, symmetric=symmetric),
            judge([{"e": a}, {"e": p}], None),
            (a, p),
        )
        equal(
            multiple_negatives_loss(a, p, scale, symmetric=symmetric, hard=h),
            judge([{"e": a}, {"e": p}, {"e": h}], None),
            (a, p, h),
        )


def test_default_scale_is_that_of_sentence_transformers(given):
    a, p = vectors(7)
    assert_close(
        multiple_negatives_loss(a, p),
        MultipleNegativesRankingLoss(given)([{"e": a}, {"e": p}], None),
    )


@pytest.mark.parametrize(
    "m, groups", [(2, None), (5, [0, 1, 0, 2, 1]), (6, [3, 3, 3, 4, 5, 5]), (4, [1, 1, 1, 1])]
)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("score", ["cosine", "dot"])
@pytest.mark.parametrize("with_hard", [False, True])
def test_equals_loops(m, groups, symmetric, score, with_hard):
    a, p, h = vectors(m, count=3, seed=m + 1)
    ids = None if groups is None else torch.tensor(groups)

    def table(u, v):
        return 3 * (safe_cosine(u[:, None], v) if score == "cosine" else u @ v.T)

    ours = multiple_negatives_loss(
        a, p, 3.0, ids, score=score, symmetric=symmetric, hard=h if with_hard else None
    )
    theirs = naive(table(a, p), groups, table(a, h) if with_hard else None, symmetric)
    equal(ours, theirs, (a, p, h) if with_hard else (a, p))


def test_is_simcse_at_one_over_scale():
    a, p, h = vectors(6, count=3, seed=9)
    groups = torch.tensor([0, 0, 1, 2, 2, 2])
    equal(
        multiple_negatives_loss(a, p, 8.0, groups, hard=h),
        simcse_loss(a, p, 1 / 8, h, groups),
        (a, p, h),
    )


def test_by_hand_and_limits():
    eye = torch.eye(3, dtype=torch.float64)
    assert_close(multiple_negatives_loss(eye, eye, math.log(3)).item(), math.log(5 / 3))
    assert_close(
        multiple_negatives_loss(eye, eye, math.log(3), torch.tensor([0, 0, 1])).item(),
        (2 * math.log(4 / 3) + math.log(5 / 3)) / 3,
    )
    for m in (2, 9):
        (a,) = vectors(m, count=1)
        assert_close(multiple_negatives_loss(a, a[:1].expand(m, -1)).item(), math.log(m))
    simplex = F.normalize(torch.eye(32, dtype=torch.float64) - 1 / 32, dim=1)
    assert_close(
        multiple_negatives_loss(simplex, simplex, 1.0).item(), math.log(1 + 31 * math.exp(-32 / 31))
    )


def test_order_and_length_of_vectors_do_not_count():
    a, p = vectors(8, seed=3)
    groups = torch.tensor([0, 1, 2, 0, 3, 4, 4, 5])
    order = torch.tensor([3, 1, 7, 0, 6, 2, 5, 4])
    loss = multiple_negatives_loss(a, p, groups=groups)
    assert_close(multiple_negatives_loss(a[order], p[order], groups=groups[order]), loss)
    assert_close(multiple_negatives_loss(3 * a, p / 7, groups=groups), loss)
    assert_close(
        multiple_negatives_loss(p, a, groups=groups, symmetric=True),
        multiple_negatives_loss(a, p, groups=groups, symmetric=True),
    )


@pytest.mark.parametrize("symmetric", [False, True])
def test_one_pair_costs_nothing_and_says_so(symmetric):
    a, p = vectors(1)
    with pytest.warns(RuntimeWarning, match="no negatives"):
        loss = multiple_negatives_loss(a, p, symmetric=symmetric)
    assert loss.item() == 0
    assert all((g == 0).all() for g in torch.autograd.grad(loss, (a, p)))


def test_one_pair_with_a_hard_negative_is_a_question(recwarn):
    a, p, h = vectors(1, count=3)
    assert multiple_negatives_loss(a, p, hard=h) > 0
    assert not recwarn


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_one_cluster_costs_nothing(symmetric, score):
    a, p = vectors(5)
    loss = multiple_negatives_loss(
        a, p, groups=torch.full((5,), 7), score=score, symmetric=symmetric
    )
    assert loss.item() == 0
    assert all((g == 0).all() for g in torch.autograd.grad(loss, (a, p)))


def test_zero_vector_gets_no_gradient():
    a, p = vectors(4)
    with torch.no_grad():
        a[1], p[2] = 0, 0
    ga, gp = torch.autograd.grad(multiple_negatives_loss(a, p), (a, p))
    assert (
        (ga[1] == 0).all()
        and (gp[2] == 0).all()
        and ga[0].abs().max() > 0
        and ga.isfinite().all()
        and gp.isfinite().all()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_half_precision_is_reduced_in_single(dtype, score):
    a, p = (x.detach().to(dtype) for x in vectors(6))
    with torch.autocast("cpu", torch.bfloat16):
        loss = multiple_negatives_loss(a, p, score=score)
    assert loss.dtype == torch.float32
    assert_close(loss, multiple_negatives_loss(a.float(), p.float(), score=score))


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(p=torch.ones(3, 6)), "one shape"),
        (dict(hard=torch.ones(4, 5)), "one shape"),
        (dict(a=torch.ones(4), p=torch.ones(4)), "one shape"),
        (dict(a=torch.ones(0, 6), p=torch.ones(0, 6)), "one shape"),
        (dict(scale=0.0), "positive scale"),
        (dict(scale=-1.0), "positive scale"),
        (dict(scale=math.nan), "positive scale"),
        (dict(scale=math.inf), "positive scale"),
        (dict(groups=torch.zeros(3)), "groups"),
        (dict(groups=torch.zeros(4, 1)), "groups"),
        (dict(score="euclid"), "score"),
        (dict(a=torch.full((4, 6), math.nan)), "anchors"),
        (dict(p=torch.full((4, 6), math.inf)), "positives"),
        (dict(hard=torch.full((4, 6), math.nan)), "hard"),
    ],
)
def test_bad_input_is_named(change, words):
    given = dict(a=torch.ones(4, 6), p=torch.ones(4, 6)) | change
    with pytest.raises(ValueError, match=words):
        multiple_negatives_loss(given.pop("a"), given.pop("p"), **given)


# ---- scores


def test_anchors_and_candidates_may_differ_in_number():
    (a,) = vectors(3, count=1)
    (b,) = vectors(5, count=1, seed=1)
    for score in ("cosine", "dot"):
        assert score_matrix(a, b, score).shape == (3, 5)
    with pytest.raises(ValueError, match="euclid"):
        score_matrix(a, b, "euclid")


# ---- clusters and collisions


def slow_clusters(first, second):
    """Join what shares a sentence until nothing changes."""

    def clean(s):
        return " ".join(s.split()).casefold()

    sets = [({clean(a), clean(b)}, {i}) for i, (a, b) in enumerate(zip(first, second))]
    joined = True
    while joined:
        joined = False
        for x, y in combinations(range(len(sets)), 2):
            if sets[x][0] & sets[y][0]:
                sets[x] = (sets[x][0] | sets[y][0], sets[x][1] | sets[y][1])
                del sets[y]
                joined = True
                break
    return {frozenset(rows) for _, rows in sets}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("words", [6, 20, 60])
def test_clusters_equal_the_slow_closure(seed, words):
    g = torch.Generator().manual_seed(seed)

    def draw():
        return [
            ["W{}", " w{} ", "w{}"][k % 3].format(k // 3)
            for k in torch.randint(3 * words, (25,), generator=g).tolist()
        ]

    first, second = draw(), draw()
    ours = clusters(first, second)
    assert {
        frozenset((ours == c).nonzero()[:, 0].tolist()) for c in ours.unique()
    } == slow_clusters(first, second)
    seen = list(dict.fromkeys(ours.tolist()))
    assert seen == list(range(len(seen))) and ours.dtype == torch.int64


def test_clusters_by_hand():
    # a chain
    assert clusters(["a", "b", "c", "d"], ["b", "c", "d", "e"]).tolist() == [0, 0, 0, 0]
    # a star
    assert clusters(["b", "x", "c", "d"], ["a", "y", "a", "a"]).tolist() == [0, 1, 0, 0]
    # its own partner
    assert clusters(["a", "c", "a"], ["a", "d", "c"]).tolist() == [0, 0, 0]
    assert clusters(["C", "C++", "c"], ["p", "q", "r"]).tolist() == [0, 1, 0]
    assert clusters([], []).shape == (0,)
    with pytest.raises(ValueError, match="one length"):
        clusters(["a"], [])


def test_a_long_chain_is_one_cluster():
    n = 100_000
    for step in (1, -1):
        names = [str(i) for i in range(n)][::step]
        assert clusters(names[:-1], names[1:]).unique().tolist() == [0]


@pytest.mark.parametrize(
    "groups", [[0, 0, 1, 2], [0, 0, 0, 1, 1, 2, 3], [5] * 4, list(range(6)), [9, 9, 2, 2, 4, 4, 1]]
)
def test_collision_rate_equals_counting_all_pairs(groups):
    twos = list(combinations(groups, 2))
    assert_close(collision_rate(torch.tensor(groups)), sum(a == b for a, b in twos) / len(twos))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: collision_rate(torch.zeros(1)), "at least 2"),
        (lambda: collision_rate(torch.zeros(2, 2)), "at least 2"),
        (lambda: no_duplicate_batches(torch.arange(5), 0), "at least 1"),
        (lambda: no_duplicate_batches(torch.tensor([0, 0, 1]), 3), "2 groups"),
        (lambda: no_duplicate_batches(torch.zeros(0), 1), "shape"),
        (lambda: no_duplicate_batches(torch.zeros(2, 2), 1), "shape"),
    ],
)
def test_bad_groups_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ---- batches


def random_groups(seed, n=60):
    g = torch.Generator().manual_seed(seed)
    kinds = [
        torch.randint(n, (n,), generator=g),
        torch.randint(8, (n,), generator=g),
        torch.cat([torch.zeros(n // 2, dtype=torch.int64), torch.arange(1, n // 2 + 1)]),
    ]
    # ids need not be 0, 1, 2
    return kinds[seed % 3] * 7 - 3


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_no_batch_has_two_of_a_group_and_no_row_comes_twice(seed, m):
    groups = random_groups(seed)
    batches, left = no_duplicate_batches(groups, m, torch.Generator().manual_seed(seed))
    assert batches.shape[1] == m and batches.dtype == torch.int64
    assert all(len(groups[rows].unique()) == m for rows in batches)
    assert torch.cat([batches.flatten(), left]).sort().values.tolist() == list(range(len(groups)))
    sizes = Counter(groups.tolist()).values()
    fits = [n for n in range(1, len(groups) + 1) if sum(min(s, n) for s in sizes) >= n * m]
    assert len(batches) == max(fits)


def test_batches_depend_on_the_generator_alone():
    groups = random_groups(1)

    def run(seed):
        return no_duplicate_batches(groups, 4, torch.Generator().manual_seed(seed))

    assert torch.equal(run(1)[0], run(1)[0]) and torch.equal(run(1)[1], run(1)[1])
    assert not torch.equal(run(1)[0], run(2)[0])


def test_rows_of_a_group_meet_all_others_about_equally_often():
    """300 epochs: any two rows of different groups share a batch with nearly the same probability,
    and all rows wait in turn.
    """
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 3, 4, 5, 6])
    met, waited, places = torch.zeros(10, 10), torch.zeros(10), torch.zeros(10)
    for seed in range(600):
        batches, left = no_duplicate_batches(groups, 3, torch.Generator().manual_seed(seed))
        for k, rows in enumerate(batches):
            met[rows[:, None], rows] += 1
            places[rows] += k
        waited[left] += 1
    lone = met[5:, 5:][~torch.eye(5, dtype=torch.bool)]
    assert lone.min() > 0.75 * lone.mean() and lone.max() < 1.25 * lone.mean()
    assert met[0, 1] == met[3, 4] == 0 and met[0, 3:].min() > 60
    assert waited.min() > 20
    # early or late in the epoch: a matter of chance
    assert (places / (600 - waited) - 1).abs().max() < 0.15


def test_rows_of_a_group_do_not_follow_each_other():
    groups, gaps = torch.arange(40) // 2, []
    for seed in range(20):
        batches, _ = no_duplicate_batches(groups, 4, torch.Generator().manual_seed(seed))
        where = torch.empty(40, dtype=torch.int64)
        where[batches] = torch.arange(10)[:, None]
        gaps += (where[::2] - where[1::2]).abs().tolist()
    # 1 in 5 by chance; nearly all if batches stay as dealt
    assert sum(g == 1 for g in gaps) / len(gaps) < 0.4


def test_rows_of_large_groups_take_turns():
    groups = torch.tensor([0] * 10 + [1, 2, 3])
    used = torch.zeros(13)
    for seed in range(200):
        batches, _ = no_duplicate_batches(groups, 2, torch.Generator().manual_seed(seed))
        assert len(batches) == 3
        used[batches.flatten()] += 1
    assert (used[:10] > 30).all() and (used[:10] < 95).all() and (used[10:] > 150).all()


def test_a_hundred_thousand_rows_are_dealt():
    groups = torch.randint(70_000, (100_000,), generator=torch.Generator().manual_seed(0))
    batches, left = no_duplicate_batches(groups, 64, torch.Generator().manual_seed(0))
    ordered = groups[batches].sort(1).values
    assert len(batches) == 1562 and len(left) == 32 and (ordered[:, 1:] > ordered[:, :-1]).all()


FIRST = [f"what is {k}" for k in "one two three four five six seven eight nine ten eleven".split()]
SECOND = [f"tell me {k}" for k in "one one three four five six seven eight nine ten eleven".split()]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def texts(batch, tokenizer):
    rows = [tokenizer.decode(ids, skip_special_tokens=True) for ids in batch.tokens.input_ids]
    return list(
        zip(
            *(rows[k * len(batch.groups) : (k + 1) * len(batch.groups)] for k in range(batch.views))
        )
    )


@pytest.mark.parametrize("columns", [(FIRST, SECOND), (FIRST, SECOND, SECOND[::-1])])
def test_batches_hold_whole_rows_with_their_cluster(tokenizer, columns):
    seen, groups = [], clusters(FIRST, SECOND)
    for batch in pair_batches(columns, tokenizer, 5, epochs=1):
        assert batch.views == len(columns) and len(batch.groups.unique()) == 5
        for row, group in zip(texts(batch, tokenizer), batch.groups.tolist()):
            i = FIRST.index(row[0])
            assert row == tuple(c[i] for c in columns) and group == groups[i]
            seen.append(i)
    assert len(seen) == len(set(seen)) == 10


@pytest.mark.parametrize("unique", [True, False])
def test_start_resumes_anywhere(tokenizer, unique):
    whole = list(pair_batches((FIRST, SECOND), tokenizer, 3, epochs=3, seed=5, unique=unique))
    assert len(whole) == 9
    for start in (0, 1, 3, 4, 8, 9):
        rest = list(
            pair_batches(
                (FIRST, SECOND), tokenizer, 3, epochs=3, seed=5, unique=unique, start=start
            )
        )
        assert [b.tokens.input_ids.tolist() for b in rest] == [
            b.tokens.input_ids.tolist() for b in whole[start:]
        ]
    orders = [[t for b in whole[k : k + 3] for t in texts(b, tokenizer)] for k in (0, 3, 6)]
    assert orders[0] != orders[1] != orders[2]
    other = next(pair_batches((FIRST, SECOND), tokenizer, 3, seed=6, unique=unique))
    assert not torch.equal(other.groups, whole[0].groups)


def test_random_batches_do_hold_twins(tokenizer):
    twins = [
        len(b.groups.unique()) < 8
        for b in pair_batches((FIRST, SECOND), tokenizer, 8, epochs=60, unique=False)
    ]
    assert 15 < sum(twins) < 50  # 28 / 55 of them


def test_without_end_by_default(tokenizer):
    assert len(list(islice(pair_batches((FIRST, SECOND), tokenizer, 5), 7))) == 7


def test_processes_share_each_batch(tokenizer):
    def run(**k):
        return list(pair_batches((FIRST, SECOND), tokenizer, 4, epochs=2, seed=1, **k))

    whole, parts = run(), [run(process_index=r, num_processes=2) for r in range(2)]
    for b, x, y in zip(whole, *parts, strict=True):
        assert len(x.groups) == len(y.groups) == 2
        assert set(texts(b, tokenizer)) == set(texts(x, tokenizer)) | set(texts(y, tokenizer))


def test_own_groups_are_used_and_sentences_cut(tokenizer):
    groups = torch.arange(11) // 6
    batch = next(pair_batches((FIRST, SECOND), tokenizer, 2, max_length=4, groups=groups))
    assert sorted(batch.groups.tolist()) == [0, 1] and batch.tokens.input_ids.shape == (4, 4)


@pytest.mark.parametrize(
    "columns, change",
    [
        ((FIRST,), {}),
        ((FIRST, SECOND[1:]), {}),
        ((FIRST, SECOND, FIRST, SECOND), {}),
        ((FIRST, SECOND), dict(groups=torch.zeros(3))),
        ((FIRST, SECOND), dict(num_processes=2, batch_size=5)),
        ((FIRST, SECOND), dict(process_index=1)),
        ((FIRST, SECOND), dict(start=-1)),
        ((FIRST, SECOND), dict(batch_size=11)),
        ((FIRST, SECOND), dict(batch_size=12, unique=False)),
        ((FIRST, [None, *SECOND[1:]]), {}),
        ((FIRST, SECOND, [*FIRST[1:], 3.5]), {}),
    ],
)
def test_bad_batches_are_refused(tokenizer, columns, change):
    with pytest.raises(ValueError, match="expected"):
        next(pair_batches(columns, tokenizer, **({"batch_size": 4} | change)))


# ---- in training


def small_model(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViewModel(SentenceEncoder(BertModel(config), tokenizer))


def test_view_loss_masks_clusters_and_takes_hard_negatives(tokenizer):
    model = small_model(tokenizer).eval()
    batch = next(pair_batches((FIRST, SECOND, SECOND[::-1]), tokenizer, 11, unique=False))
    assert len(batch.groups.unique()) == 10
    a, p, h = model(batch)
    assert_close(
        view_loss(multiple_negatives_loss)(model, batch),
        multiple_negatives_loss(a, p, groups=batch.groups, hard=h),
    )
    assert_close(
        view_loss(multiple_negatives_loss, False)(model, batch),
        multiple_negatives_loss(a, p, hard=h),
    )
    assert view_loss(multiple_negatives_loss)(model, batch) < view_loss(
        multiple_negatives_loss, False
    )(model, batch)


def test_training_finds_the_partners(tokenizer):
    model = small_model(tokenizer)
    loss = view_loss(partial(multiple_negatives_loss, symmetric=True))
    records = list(
        train_views(model, pair_batches((FIRST, SECOND), tokenizer, 10), loss, 30, lr=1e-2)
    )
    assert records[-1].loss < 0.5 * records[0].loss


def test_chunks_have_the_gradient_of_the_whole_batch_and_accumulation_has_not(tokenizer):
    def gradient(chunk, batches):
        model = small_model(tokenizer)
        model.chunk = chunk
        sum(view_loss(multiple_negatives_loss)(model, b) for b in batches).div(
            len(batches)
        ).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = next(pair_batches((FIRST, SECOND), tokenizer, 8, seed=2))
    pieces = [
        next(view_batches([[f for f, _ in part], [s for _, s in part]], tokenizer, 4))
        for part in (texts(whole, tokenizer)[:4], texts(whole, tokenizer)[4:])
    ]
    assert_close(gradient(3, [whole]), gradient(None, [whole]), rtol=1e-4, atol=1e-5)
    assert (gradient(None, pieces) - gradient(None, [whole])).norm() > 0.1 * gradient(
        None, [whole]
    ).norm()
