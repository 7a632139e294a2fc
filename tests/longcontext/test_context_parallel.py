"""What context parallelism costs, by hand and against masks."""

import numpy as np

from rmutils.longcontext.context_parallel import balance, communication, packed_balance


def test_what_is_sent_and_who_waits():
    """Olmo 3 7B by hand: 32 layers, 8 slices of 8,192 tokens; each receives seven of them."""
    assert communication(65_536, 8, layers=32, key_heads=32, head_size=128) == \
        7 * 8192 * 32 * (2 * 32 * 128 * 2)
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        seen = (columns <= rows) & (rows - columns < (window or 64))
        np.testing.assert_allclose(balance(64, 4, window),
                                   seen.reshape(4, -1).sum(1) / seen.sum())


def test_who_waits_where_documents_do_not_see_each_other():
    """Against masks: an instance of three documents and padding, one of a single document."""
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        near = (columns <= rows) & (rows - columns < (window or 64))
        document = np.repeat([0, 1, 2, 3], [30, 20, 6, 8])
        packed = near & (document[:, None] == document) & (document < 3)
        work = np.stack([each.sum(1).reshape(4, -1).sum(1) for each in (packed, near)])
        np.testing.assert_allclose(packed_balance([[30, 20, 6], [64]], 64, 4, window),
                                   work / work.mean(1, keepdims=True))
