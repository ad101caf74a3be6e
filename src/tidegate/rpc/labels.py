"""Electronic shelf labels, the example of a device type: the thesis's messages with what resolves its hazards.

The thesis's request is `{"deviceMac", "type": 0 image | 1 blink, "fields": {text: text}}` and its reply
`{"deviceMac", "ack"}`. `SHELF_LABEL` adds `id`, `key`, `token` and `deadline`; `SILENT_LABEL` is one of the old kind,
whose reply repeats nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.rpc.schema import DeviceType, Field, Kind, Method

SHELF_LABEL = DeviceType(
    name="shelf-label",
    pattern="[0-9a-f]{12}",
    methods=(
        Method(name="image", code=0, takes_any=True, fields=(Field(name="price", max_size=32),)),
        Method(
            name="blink",
            code=1,
            fields=(
                Field(name="color", choices=("red", "green", "blue")),
                Field(name="seconds", kind=Kind.INTEGER, minimum=1, maximum=3600),
            ),
        ),
    ),
)

SILENT_LABEL = replace(SHELF_LABEL, name="silent-label", can_echo=False, bundle=1)
