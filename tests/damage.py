"""Files as a hostile or broken world may leave them: content with one change, anywhere, of any kind."""

import contextlib
import json

NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
VALUES = [None, True, -1, 0, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 0.5, -0.0, 1e-320, 1e308]
VALUES += ["", "x", "\u0000", "\u00e9", "[UNK]", "a" * 5000, "../../x", "/dev/zero"]
VALUES += [[], {}, [[]], [None], {"": 0}, [0] * 3000, ["a", "a"]]


def damaged(content, source):
    """`content` (bytes) with a change that `source` (random.Random) chooses; JSON often stays JSON."""
    if not content:
        return with_noise(content, source)
    if source.random() < 0.6:
        with contextlib.suppress(ValueError):  # it is no JSON
            return damaged_json(json.loads(content), source)
    return source.choice([flipped, overwritten, cut, without_slice, repeated, with_noise])(content, source)


def place_in(content, source):
    """Ends are where headers and footers are."""
    near = min(len(content), source.choice([8, 64, 1024, len(content)]))
    offset = source.randrange(near + 1)
    return offset if source.random() < 0.5 else len(content) - offset


def flipped(content, source):
    changed = bytearray(content)
    for _ in range(source.choice([1, 1, 1, 4])):
        at = min(place_in(content, source), len(content) - 1)
        changed[at] ^= 1 << source.randrange(8)
    return bytes(changed)


def overwritten(content, source):
    number = source.choice(NUMBERS)
    least = (number.bit_length() + 7) // 8
    width = source.choice([width for width in (1, 2, 4, 8) if width >= least])
    at = place_in(content, source)
    return content[:at] + number.to_bytes(width, source.choice(["little", "big"])) + content[at + width :]


def cut(content, source):
    return content[: place_in(content, source)]


def slice_of(content, source):
    begin = place_in(content, source)
    return begin, min(len(content), begin + source.choice([1, 4, 40, 1000]))


def without_slice(content, source):
    begin, end = slice_of(content, source)
    return content[:begin] + content[end:]


def repeated(content, source):
    begin, end = slice_of(content, source)
    return content[:end] + content[begin:end] * source.choice([1, 1, 100]) + content[end:]


def with_noise(content, source):
    at = place_in(content, source)
    return content[:at] + source.randbytes(source.choice([1, 8, 100])) + content[at:]


def places_of(value):
    """Every (container, key) below `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from places_of(inner)


def damaged_json(document, source):
    places = list(places_of(document))
    if not places:
        return json.dumps(source.choice(VALUES)).encode()
    # Long lists, as vocabularies are, would else take nearly all of the changes.
    shallow = [place for place in places if len(place[0]) < 30]
    container, key = source.choice(shallow if shallow and source.random() < 0.8 else places)
    kind = source.randrange(5)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        names = [other for _, other in places if isinstance(other, str)]
        container[source.choice(["", "x", *names])] = container.pop(key)
    elif kind == 2:
        other, other_key = source.choice(places)
        container[key] = json.loads(json.dumps(other[other_key]))
    elif kind == 3 and isinstance(container[key], int | float):
        container[key] = source.choice([-container[key], container[key] + 1, container[key] * 1000, container[key] / 3])
    else:
        container[key] = source.choice(VALUES)
    return json.dumps(document).encode()
