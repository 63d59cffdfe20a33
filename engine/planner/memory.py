"""Byte budgets and a model's geometry → how many cells, images and lanes there are. Pure; allocates nothing.

Both tiers of memory are divided into cells of one size: a cell holds one KV page, a state image takes `image_cells` of them. So
there's one budget in each tier and no fixed share that one kind could exhaust while the other lies idle.
"""

from dataclasses import dataclass

from engine.errors import ConfigRefused

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Geometry:
    """Bytes of one KV page (all attention layers) and of one lane's recurrent state, and tokens a page holds. A step takes at least
    `workspace_bytes` beside all that is planned here.
    """

    page_tokens: int
    page_bytes: int
    image_bytes: int
    context_tokens: int
    workspace_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    device_bytes: int
    host_bytes: int
    lanes: int
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`lane_bytes` is outside `device_cells`. The disk holds files, not cells. `table()` prints it for a person."""

    geometry: Geometry
    lanes: int
    image_cells: int
    device_cells: int
    host_cells: int
    disk_bytes: int = 0

    @property
    def lane_bytes(self) -> int:
        return self.lanes * self.geometry.image_bytes

    @property
    def pages_per_context(self) -> int:
        return ceil_div(self.geometry.context_tokens, self.geometry.page_tokens)

    def table(self) -> str:
        """Of each tier also how many images, or whole contexts with one image each, it could hold at most."""
        shape, cell = self.geometry, self.geometry.page_bytes
        a_token, context = cell // shape.page_tokens, f"{shape.context_tokens:,} tokens"

        def pages(name: str, count: int, note: str) -> tuple[str, str, int, str]:
            return (name, f"{count:,} pages", count * cell, note)

        rows = [
            ("page", f"{shape.page_tokens:,} tokens", cell, f"{a_token:,} bytes a token"),
            pages("state image", self.image_cells, ""),
            pages("one full context", self.pages_per_context, context),
            ("lanes", f"{self.lanes:,}", self.lane_bytes, "beside the tiers"),
            pages("device", self.device_cells, self._holds(self.device_cells)),
            pages("host", self.host_cells, self._holds(self.host_cells)),
            ("disk", "files", self.disk_bytes, self._holds(self.disk_bytes // cell)),
            ("workspace", "at least", shape.workspace_bytes, "of a step, beside the tiers"),
        ]
        return "\n".join(
            f"{name:<18}{count:>14}{size / MIB:>12,.1f} MiB   {note}".rstrip()
            for name, count, size, note in rows
        )

    def _holds(self, cells: int) -> str:
        contexts = cells // (self.pages_per_context + self.image_cells)
        return f"images: {cells // self.image_cells:,}, full contexts: {contexts:,}"


def ceil_div(amount: int, size: int) -> int:
    return -(-amount // size)


def plan_memory(geometry: Geometry, budget: Budget) -> MemoryPlan:
    """Raises ConfigRefused naming the deficit when one full context and its image don't fit the device budget: a request that
    is admitted alone can then always run to the context's end.
    """
    image_cells = ceil_div(geometry.image_bytes, geometry.page_bytes)
    plan = MemoryPlan(
        geometry=geometry,
        lanes=budget.lanes,
        image_cells=image_cells,
        device_cells=budget.device_bytes // geometry.page_bytes,
        host_cells=budget.host_bytes // geometry.page_bytes,
        disk_bytes=budget.disk_bytes,
    )
    needed = plan.pages_per_context + image_cells
    if plan.device_cells < needed:
        deficit = needed * geometry.page_bytes - budget.device_bytes
        raise ConfigRefused(
            f"a context of {geometry.context_tokens} tokens needs {needed * geometry.page_bytes / MIB:.1f} MiB on the device, "
            f"the budget is {budget.device_bytes / MIB:.1f} MiB: {deficit / MIB:.1f} MiB short (in bytes: {deficit}) "
            f"(raise device_bytes or lower context_tokens)"
        )
    return plan
