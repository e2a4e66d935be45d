#!/usr/bin/env python3
"""Draws the icon of the window, an owl's face in a speech bubble, as PNG files in several sizes beside this script, and
as one file for a Mac.

Each shape is a signed distance, negative inside, in units of a square from 0 to 1; a pixel's coverage follows from it,
so that edges are smooth in every size."""

import math
import pathlib
import struct
import zlib

SIZES = (32, 64, 128, 256, 512)
ICNS = {b"ic11": 32, b"ic12": 64, b"ic07": 128, b"ic08": 256, b"ic09": 512}  # the first two: 16 and 32, fine
TOP, BOTTOM = (44, 96, 122), (22, 36, 74)  # the ground, from top to bottom
BUBBLE, EYE, BEAK = (250, 247, 238), (28, 44, 84), (240, 150, 50)


def box(x, y, middle, half, radius):
    """A box with round corners."""
    dx, dy = (abs(v - m) - h + radius for v, m, h in zip((x, y), middle, half))
    return math.hypot(max(dx, 0), max(dy, 0)) + min(max(dx, dy), 0) - radius


def disc(x, y, middle, radius):
    return math.hypot(x - middle[0], y - middle[1]) - radius


def polygon(x, y, *corners):
    """A convex polygon, whose corners go round clockwise as one sees them."""

    def beyond(a, b):
        """How far the place is on the outer side of an edge."""
        return ((x - a[0]) * (b[1] - a[1]) - (y - a[1]) * (b[0] - a[0])) / math.dist(a, b)

    return max(map(beyond, corners, corners[1:] + corners[:1]))


def colour(x, y, pixel):
    """Red, green, blue and opacity of a place, for pixels of this width."""

    def cover(distance):
        return min(max(0.5 - distance / pixel, 0), 1)

    rgb = tuple(a + (b - a) * y for a, b in zip(TOP, BOTTOM))

    def paint(distance, over):
        nonlocal rgb
        part = cover(distance)
        rgb = tuple(a + (b - a) * part for a, b in zip(rgb, over))

    tail = polygon(x, y, (0.27, 0.60), (0.47, 0.66), (0.27, 0.84))
    ears = [polygon(across, y, (0.215, 0.17), (0.42, 0.27), (0.215, 0.40)) for across in (x, 1 - x)]
    paint(min(box(x, y, (0.5, 0.47), (0.31, 0.235), 0.17), tail, *ears), BUBBLE)
    for side in (-1, 1):
        eye = (0.5 + side * 0.135, 0.455)
        paint(disc(x, y, eye, 0.108), EYE)
        paint(disc(x, y, (eye[0] + 0.03, eye[1] - 0.032), 0.032), BUBBLE)
    paint(polygon(x, y, (0.452, 0.535), (0.548, 0.535), (0.5, 0.63)), BEAK)
    # The margin around the ground is the one that icons on a Mac have.
    return rgb, cover(box(x, y, (0.5, 0.5), (0.41, 0.41), 0.185))


def png(size):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = bytearray()
    for row in range(size):
        rows.append(0)  # no filter
        for column in range(size):
            rgb, opacity = colour((column + 0.5) / size, (row + 0.5) / size, 1 / size)
            rows += bytes(round(value) for value in (*rgb, 255 * opacity))
    header = struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


pictures = {size: png(size) for size in SIZES}
folder = pathlib.Path(__file__).parent
for size, data in pictures.items():
    (folder / f"icon-{size}.png").write_bytes(data)
entries = [(kind, pictures[size]) for kind, size in ICNS.items()]
icns = b"".join(kind + struct.pack(">I", 8 + len(data)) + data for kind, data in entries)
(folder / "icon.icns").write_bytes(b"icns" + struct.pack(">I", 8 + len(icns)) + icns)
