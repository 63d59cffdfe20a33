"""The Qwen3.5-family hybrid text model: the forward pass and the published names of its weights. Knows no requests and no files.

    token ids → embedding → n × [ x += mixer(norm(x));  x += mlp(norm(x)) ] → norm → head → logits

A mixer is gated full attention (every fourth layer, state: pages of keys and values) or Gated DeltaNet (state: one matrix a head
and the convolution's last columns). Source: model-and-weights reference, section 2.
"""

import logging
from dataclasses import dataclass

import torch

from engine.models.batch import CachePools, ForwardBatch
from engine.models.config import FULL_ATTENTION, ModelConfig
from engine.models.graph import DecodeGraph
from engine.models.layers import Mlp, NamedTensors, Norm, Placement, Projection
from engine.ops.embedding import embedding
from engine.ops.gated_delta_net import GatedDeltaNetWeights, gated_delta_net
from engine.ops.linear import Matrix, linear, pack
from engine.ops.narrowing import narrowed
from engine.ops.native import NotRecorded
from engine.ops.output_gate import output_gate
from engine.ops.paged_attention import PagedRows, page_rows, paged_attention, store_kv
from engine.ops.ragged import Ragged, split_rows
from engine.ops.rope import apply_rope, rope_frequencies, rope_table

log = logging.getLogger(__name__)

ATTENTION_EASE = 0.4
"""What a multiplication of attention takes, as a part of what one with weights takes: its products are larger (measured on a CPU)."""


@dataclass(frozen=True, slots=True)
class StepLayout:
    """What every layer of one forward needs of the batch, worked out once."""

    lane_rows: Ragged
    page_rows: PagedRows
    cos: torch.Tensor
    sin: torch.Tensor


class GatedAttention:
    """residual + out(sigmoid(gate) * attention(rope(norm(q)), rope(norm(k)), v)); `ordinal` is its place among the attention layers."""

    def __init__(self, config: ModelConfig, ordinal: int, place: Placement) -> None:
        self.heads, self.dim = config.num_attention_heads, config.head_dim
        self.ordinal = ordinal
        queries, keys = self.heads * self.dim, config.num_key_value_heads * self.dim
        parts = {"q_proj": 2 * queries, "k_proj": keys, "v_proj": keys}
        self.inputs = Projection(config.hidden_size, parts, place)
        self.q_norm = Norm(self.dim, config.rms_norm_eps, place)
        self.k_norm = Norm(self.dim, config.rms_norm_eps, place)
        self.output = Projection(queries, {"o_proj": config.hidden_size}, place)

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, layout: StepLayout, pools: CachePools
    ) -> torch.Tensor:
        q_gate, k, v = self.inputs(x)
        q, gate = q_gate.view(len(x), self.heads, -1).chunk(2, dim=-1)  # side by side in each head
        k, v = (part.view(len(x), -1, self.dim) for part in (k, v))
        q = apply_rope(self.q_norm(q), layout.cos, layout.sin)
        k = apply_rope(self.k_norm(k), layout.cos, layout.sin)
        pool = pools.kv[:, self.ordinal]
        store_kv(k, v, pool, layout.page_rows)
        out = paged_attention(q, pool, layout.page_rows)
        return self.output.onto(residual, output_gate(out, gate).flatten(1))

    def pack(self) -> None:
        self.inputs.pack()
        self.output.pack()

    def tensors(self, prefix: str) -> NamedTensors:
        yield from self.inputs.tensors(f"{prefix}self_attn.")
        yield f"{prefix}self_attn.q_norm.weight", self.q_norm.weight
        yield f"{prefix}self_attn.k_norm.weight", self.k_norm.weight
        yield from self.output.tensors(f"{prefix}self_attn.")


class GatedDeltaNet:
    """residual + out(norm(delta_rule(conv(qkv))) * silu(z)); `ordinal` is its place among the Gated DeltaNet layers."""

    def __init__(self, config: ModelConfig, ordinal: int, place: Placement) -> None:
        self.ordinal = ordinal
        heads, channels = config.linear_num_value_heads, config.conv_channels
        parts = {
            "in_proj_qkv": channels,
            "in_proj_z": config.value_channels,
            "in_proj_b": heads,
            "in_proj_a": heads,
        }
        self.inputs = Projection(config.hidden_size, parts, place)
        self.weights = GatedDeltaNetWeights(
            conv=place.empty(channels, config.linear_conv_kernel_dim),
            a_log=place.empty(heads, dtype=torch.float32),
            dt_bias=place.empty(heads, dtype=torch.float32),
            norm=place.empty(config.linear_value_head_dim, dtype=torch.float32),
            eps=config.rms_norm_eps,
            key_dim=config.linear_key_head_dim,
            value_dim=config.linear_value_head_dim,
        )
        self.output = Projection(config.value_channels, {"out_proj": config.hidden_size}, place)

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, layout: StepLayout, pools: CachePools
    ) -> torch.Tensor:
        qkv, z, b, a = self.inputs(x)
        windows, states = pools.conv[:, self.ordinal], pools.recurrent[:, self.ordinal]
        out = gated_delta_net((qkv, z, b, a), self.weights, windows, states, layout.lane_rows)
        return self.output.onto(residual, out)

    def pack(self) -> None:
        self.inputs.pack()
        self.output.pack()

    def tensors(self, prefix: str) -> NamedTensors:
        prefix += "linear_attn."
        yield from self.inputs.tensors(prefix)
        yield f"{prefix}conv1d.weight", self.weights.conv[:, None]
        yield f"{prefix}A_log", self.weights.a_log
        yield f"{prefix}dt_bias", self.weights.dt_bias
        yield f"{prefix}norm.weight", self.weights.norm
        yield from self.output.tensors(prefix)


class DecoderLayer:
    def __init__(
        self, config: ModelConfig, mixer: GatedAttention | GatedDeltaNet, place: Placement
    ) -> None:
        self.mixer = mixer
        self.mlp = Mlp(config, place)
        self.mixer_norm = Norm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp_norm = Norm(config.hidden_size, config.rms_norm_eps, place)

    def __call__(self, x: torch.Tensor, layout: StepLayout, pools: CachePools) -> torch.Tensor:
        x = self.mixer(self.mixer_norm(x), x, layout, pools)
        return self.mlp(self.mlp_norm(x), x)

    def pack(self) -> None:
        self.mixer.pack()
        self.mlp.pack()

    def tensors(self, prefix: str) -> NamedTensors:
        yield f"{prefix}input_layernorm.weight", self.mixer_norm.weight
        yield f"{prefix}post_attention_layernorm.weight", self.mlp_norm.weight
        yield from self.mixer.tensors(prefix)
        yield from self.mlp.tensors(f"{prefix}mlp.")


class MtpHead:
    """Weights of the multi-token prediction head: fc over [norm(embedding) ; norm(hidden)], then one attention layer.

    The layer's ordinal is the one after the trunk's attention layers.
    """

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.embedding_norm = Norm(hidden, eps, place)
        self.hidden_norm = Norm(hidden, eps, place)
        self.fc = Projection(2 * hidden, {"fc": hidden}, place)
        attention = GatedAttention(config, config.num_attention_layers, place)
        self.layer = DecoderLayer(config, attention, place)
        self.norm = Norm(hidden, eps, place)

    def pack(self) -> None:
        self.fc.pack()
        self.layer.pack()

    def tensors(self, prefix: str) -> NamedTensors:
        yield f"{prefix}pre_fc_norm_embedding.weight", self.embedding_norm.weight
        yield f"{prefix}pre_fc_norm_hidden.weight", self.hidden_norm.weight
        yield from self.fc.tensors(prefix)
        yield from self.layer.tensors(f"{prefix}layers.0.")
        yield f"{prefix}norm.weight", self.norm.weight


class Qwen35Model:
    """Weights and forward pass. Undefined until its `tensors()` are filled (see engine.weights) and packed with `pack`, after which
    they are no longer there under their names.

    `with_mtp` makes room for the multi-token prediction head, which `forward` doesn't run.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        with_mtp: bool = False,
    ) -> None:
        place = Placement(device, dtype)
        self.config = config
        self.device, self.dtype = device, dtype
        self.embedding = place.empty(config.vocab_size, config.hidden_size)
        self.layers = _decoder_layers(config, place)
        self.norm = Norm(config.hidden_size, config.rms_norm_eps, place)
        tied = config.tie_word_embeddings
        self.head = self.embedding if tied else torch.empty_like(self.embedding)
        self.head_matrix: Matrix = self.head.T
        self.frequencies = rope_frequencies(config.rope_theta, config.rotary_dim, device)
        self.mtp = MtpHead(config, place) if with_mtp else None
        self.parameters = sum(tensor.numel() for _, tensor in self.tensors())

    @property
    def context_weight(self) -> float:
        """What attending to one more token costs a token, as a part of all else that it costs."""
        config = self.config
        attending = 4 * config.num_attention_layers * config.num_attention_heads * config.head_dim
        outside = (1 if config.tie_word_embeddings else 2) * config.vocab_size * config.hidden_size
        return ATTENTION_EASE * attending / (2 * (self.parameters - outside))

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        """Logits [len(logit_rows), vocab] fp32. Mutates `pools`: this step's keys and values, the lanes' states."""
        return self.logits(self.hidden_states(batch, pools)[batch.logit_rows])

    def recorded(self, pools: CachePools, rows: int, vocab_limit: int) -> DecodeGraph | None:
        """The pass of `rows` lanes that advance by one token each, to be repeated; None where a part has no kernel."""
        try:
            return DecodeGraph(self, pools, rows, vocab_limit)
        except NotRecorded as error:
            log.info("decode steps are not recorded: %s", error)
            return None

    @torch.inference_mode()
    def hidden_states(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        """The trunk's output after the final norm [T, hidden]. Mutates `pools` as `forward` does."""
        fresh = tuple(length == 0 for length in batch.context_lens)
        starts, contexts, tables = batch.starts, batch.context_lens, batch.page_tables
        lane_rows = split_rows(starts, batch.lanes, fresh, batch.token_ids.device)
        paged_rows = page_rows(starts, contexts, tables, pools.page_tokens)
        return self.trunk(batch.token_ids, batch.positions, lane_rows, paged_rows, pools)

    def trunk(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        lane_rows: Ragged,
        paged_rows: PagedRows,
        pools: CachePools,
    ) -> torch.Tensor:
        """`hidden_states` of rows whose places are worked out: kernels only, so that it can be recorded."""
        cos, sin = rope_table(positions, self.frequencies, self.config.mrope_section)
        layout = StepLayout(lane_rows, paged_rows, cos, sin)
        x = embedding(token_ids, self.embedding, self.dtype)
        for layer in self.layers:
            x = layer(x, layout, pools)
        return self.norm(x)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [R, hidden], after the final norm → [R, vocab] fp32."""
        return linear(hidden, self.head_matrix).float()

    def pack(self) -> None:
        """Brings the filled weights to the forms in which they're read."""
        for layer in self.layers:
            layer.pack()
        if self.mtp is not None:
            self.mtp.pack()
        self.head_matrix = pack(self.head.T)
        self.embedding = narrowed(self.embedding)
        del self.head

    def tensors(self) -> NamedTensors:
        """Every published tensor of the text model, without the `model.language_model.` prefix."""
        yield "embed_tokens.weight", self.embedding
        yield "norm.weight", self.norm.weight
        if self.head is not self.embedding:
            yield "lm_head.weight", self.head
        for i, layer in enumerate(self.layers):
            yield from layer.tensors(f"layers.{i}.")
        if self.mtp is not None:
            yield from self.mtp.tensors("mtp.")


def _decoder_layers(config: ModelConfig, place: Placement) -> list[DecoderLayer]:
    layers = []
    seen = dict.fromkeys(config.layer_types, 0)
    for name in config.layer_types:
        kind = GatedAttention if name == FULL_ATTENTION else GatedDeltaNet
        layers.append(DecoderLayer(config, kind(config, seen[name], place), place))
        seen[name] += 1
    return layers
