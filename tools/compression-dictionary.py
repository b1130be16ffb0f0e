#!/usr/bin/env python3
"""How the dictionary of compressed streams was made (docs/slacp.md, Compressed streams).

    tools/compression-dictionary.py FILE

Makes small messages of kinds that cross a hop in cleartext, and has `zstd --train` (1.5 was used) make
a dictionary of them. Most of its use is its statistics of letters and matches: zstd cannot send its own
with a block of 200 bytes. The committed file is part of the protocol. A better one needs a number of its
own, beside this one.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = 2048
SEED = 1
KINDS = []
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
WORDS = (
    "the of and to in is for on with that by this be are from at as an it was or has not which can all "
    "will one their more have if when there new no than other time only may must file error connection "
    "service user request response server client data state value order position status update message "
    "name type count size start stop open close read write"
).split()

rng = random.Random(SEED)
word = lambda: rng.choice(WORDS)
words = lambda count: " ".join(word() for _ in range(count))
upto = lambda most: rng.randint(0, most)
date = lambda: f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
time = lambda: f"{upto(23):02}:{upto(59):02}:{upto(59):02}"


def kind(count):
    """Registers a generator, and how many messages it is to make."""

    def register(make):
        KINDS.append((make, count))
        return make

    return register


@kind(300)
def syslog():
    program = rng.choice(["sshd", "kernel", "cron", "postfix/smtp", "systemd", "dhcpd"])
    event = rng.choice(["session opened for user", "connection closed by", "Started", "link is up at"])
    who = rng.choice(["root", "admin", f"10.0.{upto(9)}.{upto(254)}", "eth0"])
    head = f"<{upto(191)}>{rng.choice(MONTHS)} {rng.randint(1, 28):2} {time()} node{upto(9)}"
    return f"{head} {program}[{upto(32000)}]: {event} {who} {words(rng.randint(2, 9))}\n"


@kind(200)
def access_log():
    path = f"/{word()}/{word()}{rng.choice(['.html', '.css', '.js', '', f'?id={upto(9999)}'])}"
    at = f"{rng.randint(1, 28):02}/{rng.choice(MONTHS)}/2026:{time()} +0000"
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
    reply = f"{rng.choice([200, 200, 304, 404, 500])} {upto(90000)}"
    return f'192.0.2.{upto(254)} - - [{at}] "{rng.choice(["GET", "POST"])} {path} HTTP/1.1" {reply} "-" "{agent}"\n'


@kind(300)
def service_log():
    level = rng.choice(["DEBUG", "INFO", "WARN", "ERROR"])
    pairs = f"{word()}={upto(99999)} {word()}={word()} {word()}_{rng.choice(['ms', 'id', 'bytes'])}={upto(99999)}"
    return f"{date()}T{time()}Z {level} {word()}: {words(3)} {pairs} {word()}={rng.getrandbits(32):08x}\n"


@kind(500)
def json(depth=0):
    leaf = [upto(9999), f"{rng.uniform(-180, 180):.4f}", f'"{word()}"', "true", "null", f'"{date()}T{time()}Z"']
    inner = lambda: rng.choice(leaf) if depth > 1 else json(depth + 1)
    value = lambda: rng.choice([*leaf, f'"{words(2)}"', inner(), f"[{inner()},{inner()}]"])
    key = lambda: f"{word()}{rng.choice(['', '_id', '_at'])}"
    return "{" + ",".join(f'"{key()}":{value()}' for _ in range(rng.randint(2, 6))) + "}"


@kind(100)
def request():
    return (
        f"{rng.choice(['GET', 'POST'])} /api/{word()}/{upto(999)} HTTP/1.1\r\nHost: {word()}.example.com\r\n"
        "User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
        "Accept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.5\r\n"
        f"Cookie: session={rng.getrandbits(64):016x}\r\nConnection: keep-alive\r\n\r\n"
    )


@kind(100)
def reply():
    content = rng.choice(["application/json", "text/html; charset=utf-8", "text/plain"])
    day = f"{rng.choice(['Mon', 'Tue', 'Wed'])}, {rng.randint(1, 28):02} {rng.choice(MONTHS)} 2026"
    return (
        f"HTTP/1.1 200 OK\r\nDate: {day} {time()} GMT\r\nServer: nginx\r\nContent-Type: {content}\r\n"
        f"Content-Length: {upto(99999)}\r\nConnection: keep-alive\r\nCache-Control: max-age=3600\r\n"
        f'ETag: "{rng.getrandbits(40):x}"\r\n\r\n'
    )


@kind(200)
def xml():
    outer, inner, last = word(), word(), word()
    return (
        f'<{outer} id="{upto(999)}"><{inner}>{words(3)}</{inner}><{last}>{upto(9999)}</{last}></{outer}>\n'
    )


@kind(150)
def csv():
    return ",".join([date(), time(), *(f"{rng.uniform(-200, 200):.3f}" for _ in range(6))]) + "\n"


@kind(100)
def nmea():
    position = f"{upto(8999)}.{upto(9999):04},N,{upto(17999):05}.{upto(9999):04},E"
    course = f"{rng.uniform(0, 30):.1f},{rng.uniform(0, 360):.1f}"
    return f"$GPRMC,{upto(235959):06}.00,A,{position},{course},{rng.randint(1, 28):02}1126,,*{upto(255):02X}\r\n"


@kind(100)
def mail():
    return (
        f"From: {word()}@example.org\r\nTo: {word()}@example.com\r\nSubject: {words(4)}\r\n"
        f"Date: {date()} {time()} +0000\r\nMIME-Version: 1.0\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\n\r\n{words(30)}\r\n"
    )


def main(out):
    with tempfile.TemporaryDirectory() as folder:
        for make, count in KINDS:
            for number in range(count):
                Path(folder, f"{make.__name__}-{number:03}").write_text(make(), newline="")
        train = ["zstd", "--train", "-q", "-r", folder, f"--maxdict={SIZE}", "--dictID=1", "-f", "-o", out]
        subprocess.run(train, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
