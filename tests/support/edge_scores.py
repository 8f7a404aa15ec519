"""Scores of edges as the papers of the models have them, of rows in NumPy or torch."""


def as_complex(rows):
    """The first half of a row holds the real parts."""
    half = rows.shape[-1] // 2
    return rows[..., :half] + 1j * rows[..., half:]


def trilinear_of_complex(head, relation, tail):
    head, relation, tail = map(as_complex, (head, relation, tail))
    return (head * relation * tail.conj()).sum(-1).real


def rotated_distance(head, relation, tail):
    head, relation, tail = map(as_complex, (head, relation, tail))
    return -abs(head * relation / abs(relation) - tail).sum(-1)


FORMULAS = {
    "dot": lambda head, _relation, tail: (head * tail).sum(-1),
    "distmult": lambda head, relation, tail: (head * relation * tail).sum(-1),
    "complex": trilinear_of_complex,
    "transe_l1": lambda head, relation, tail: -abs(head + relation - tail).sum(-1),
    "transe_l2": lambda head, relation, tail: -(((head + relation - tail) ** 2).sum(-1) ** 0.5),
    "rotate": rotated_distance,
}


def edge_scores(model, head, relation, tail):
    """The scores of rows, which broadcast: one less dimension."""
    return FORMULAS[model](head, relation, tail)
