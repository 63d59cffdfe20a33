"""Where training starts: a net that already looks up what followed the last two tokens before. Knows the net's layout, no data.

Recall in context rests on an induction head (Olsson et al. 2022), which random weights find only after far more tokens than the
demo model's training sees. So the net starts with one, in the simplest form that its layers can express:

    residual   0 constant | 1…63 token | 64…95 features of the tokens before | 96…127 the same of the current ones
    layer 0    value heads 0 and 1 of the delta rule, with a state that forgets at once: features of tokens t-1, t-2 and of t, t-1
    layer 3    query heads 0 and 1: where were these features "the ones before"? The token there is written to the residual

Everything else starts random as usual, and all of it is trained.
"""

import torch

from tools.demo_net import FullAttention, GatedDelta, Net, NetConfig

TOKEN = slice(1, 64)
BEFORE = slice(64, 96)
CURRENT = slice(96, 128)
TOKEN_STD = 0.1
CONSTANT = 0.3
FEATURE_GAIN = 0.08
SHARPNESS = 0.6
COPY_GAIN = 0.15
OLDER_WEIGHT = 0.6


@torch.no_grad()
def induction_start(net: Net) -> None:
    """Sets the parts of a freshly initialised net (random state: torch's global generator)."""
    c = net.c
    assert (c.hidden, c.gdn_dim, c.head_dim) == (128, 32, 64), (
        "the picture above is for these sizes"
    )
    embedding = net.embed_tokens.weight
    embedding.zero_()
    embedding[:, TOKEN].normal_(std=TOKEN_STD)
    embedding[:, 0] = CONSTANT
    gdn, attention = net.layers[0].linear_attn, net.layers[c.interval - 1].self_attn
    assert isinstance(gdn, GatedDelta)
    assert isinstance(attention, FullAttention)
    _features(gdn, c)
    _lookup(attention, c)


def _features(m: GatedDelta, c: NetConfig) -> None:
    d = c.gdn_dim
    key, _, _ = m.split
    rows, taps = m.in_proj_qkv.weight, m.conv1d.weight[:, 0]
    # Query and key are one constant direction: what is read is what was just written, the value itself.
    for start in (0, key):
        rows[start : start + d] = 0
        rows[start : start + d, 0] = 1
        taps[start : start + d] = torch.tensor([0.0, 0.0, 0.0, 1.0])
    value = 2 * key
    features = torch.linalg.qr(torch.randn(TOKEN.stop - TOKEN.start, d))[0].T * 1.5
    older = OLDER_WEIGHT
    for head, tap in enumerate(([0.0, older, 1.0, 0.0], [0.0, 0.0, older, 1.0])):
        own = slice(value + head * d, value + (head + 1) * d)
        rows[own] = 0
        rows[own, TOKEN] = features
        taps[own] = torch.tensor(tap)
    m.A_log[:2], m.dt_bias[:2] = 2.0, 3.0
    m.in_proj_a.weight[:2] = 0
    m.in_proj_b.weight[:2] = 0
    m.in_proj_b.weight[:2, 0] = 2
    m.in_proj_z.weight[: 2 * d] = 0
    m.in_proj_z.weight[: 2 * d, 0] = 0.5
    centre = (torch.eye(d) - 1 / d) * FEATURE_GAIN
    m.out_proj.weight[:, : 2 * d] = 0
    m.out_proj.weight[BEFORE, :d] = centre
    m.out_proj.weight[CURRENT, d : 2 * d] = centre


def _lookup(m: FullAttention, c: NetConfig) -> None:
    d, free = c.head_dim, c.rotary
    width = BEFORE.stop - BEFORE.start
    same = torch.eye(width)
    m.k_proj.weight[:d] = 0
    m.k_proj.weight[free : free + width, BEFORE] = same
    m.v_proj.weight[:d] = 0
    m.v_proj.weight[: TOKEN.stop - 1, TOKEN] = torch.eye(TOKEN.stop - 1)
    for head in range(c.heads // c.kv_heads):
        query = head * 2 * d
        m.q_proj.weight[query : query + 2 * d] = 0
        m.q_proj.weight[query + free : query + free + width, CURRENT] = same
        m.q_proj.weight[query + d : query + 2 * d, 0] = 1
        out = head * d
        m.o_proj.weight[TOKEN, out : out + TOKEN.stop - 1] = torch.eye(TOKEN.stop - 1) * COPY_GAIN
    m.q_norm.weight.fill_(SHARPNESS)
    m.k_norm.weight.fill_(SHARPNESS)
