#!/usr/bin/env python3
"""Prints how big and how plain the sources are: one row a figure, with the rule by which it is counted.

    tools/figures.py [-v] [--json] [--at REV]...

Without --at, the files of this tree are counted; each --at adds a column for a revision of git. -v lists, below
the table, what stands behind the figures that should be small. `tools/figures.py --self-test` checks the counting
on a sample. What no script can see, the time of `./check`, is not here.
"""

import argparse
import io
import json
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from loops import Crate, loops
from rust_source import Source, Tree, blank, bracket_end, code_lines, split_list

ROOT = Path(__file__).resolve().parent.parent
TYPE = re.compile(r"\b(?:struct|enum|union|trait)\s+([A-Z]\w*)")
CLOSURE_IT = re.compile(r"\|\s*&?(?:mut\s+)?it\s*(?::[^|]*)?\|")
LET_TUPLE = re.compile(r"\blet\s+\(")
CONST = re.compile(r"(?<![<,] )(?<!<)\bconst\s+[A-Z_][A-Z0-9_]*\s*:")
SECTION = re.compile(r"\bstruct\s+\$?\w+\s*\{")
KEY = re.compile(r"^\s*(pub(?:\([^)]*\))?)\s+(\w+)\s*:(?!:)", re.M)
TABLE = re.compile(r"\btable_of_figures!\s*\{")
METRIC = re.compile(r'(?P<of_rows>(?:before|counters)\(\s*)?"skyhop_\w+"')
QUESTION_WORDS = {"What", "Whether", "Who", "Whose", "Whom", "How"}
RATE = ("rate.rs", "**/rate_*.rs", "rate/**/*.rs")


class Table:
    """Figures in the order of the rows: name to value, rule, and the examples for -v."""

    def __init__(self):
        self.rows = {}

    def add(self, name, value, rule="", examples=()):
        self.rows[name] = (value, rule, list(examples))


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "–"


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0


def words_of(name):
    """The words of a type's name: `HttpCache` has two, `TCPState` two, `Ipv4` one."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)


def doc_comments(comments):
    """Each doc comment as its words: lines that follow each other are one comment."""
    groups, last = [], None
    for comment in comments:
        if not comment.doc:
            continue
        kind = comment.text[:3]
        if last and last == (comment.line - 1, kind):
            groups[-1] += comment.words()
        else:
            groups.append(comment.words())
        last = (comment.line, kind)
    return [group for group in groups if group]


def tuple_parameters(function):
    """Parameters whose pattern or type is a tuple of two and more."""
    for parameter in function.parameters:
        kind = parameter.split(":", 1)[-1].strip()
        kind = re.sub(r"^&(?:'\w+\s+)?(?:mut\s+)?", "", kind)
        if any(text.startswith("(") and "," in text for text in (parameter, kind)):
            yield parameter


def paired_lets(code):
    """Each `let (a, b) = (x, y);`."""
    for mark in LET_TUPLE.finditer(code):
        pattern_end = bracket_end(code, mark.end() - 1)
        value = re.compile(r"\s*(?::[^=;]*)?=\s*(?=\()").match(code, pattern_end)
        if value and re.compile(r"\s*(?:;|else\b)").match(code, bracket_end(code, value.end())):
            if len(split_list(code[value.end() + 1 : bracket_end(code, value.end()) - 1])) > 1:
                yield mark.start()


class Sources:
    """All files of a workspace, with the kind of each."""

    def __init__(self, root):
        self.root = Path(root)
        self.crates = {path.parent.name: Tree(path) for path in sorted(self.root.glob("crates/*/src"))}
        self.production = [
            (crate, file, source) for crate, tree in self.crates.items() for _, file, source in tree.production()
        ]
        self.functions = [
            (self.place(file, function.first), function)
            for _, file, source in self.production
            for function in source.functions
        ]

    def place(self, file, line):
        return f"{file.relative_to(self.root)}:{line}"

    def shown(self, file, source, at):
        """The place of an offset in a source, and what stands there."""
        return f"{self.place(file, source.line(at))} {source.text[at : at + 60].splitlines()[0]}"

    def places(self, found):
        """`found` gives offsets in the production code of a source."""
        return [
            self.shown(file, source, at)
            for _, file, source in self.production
            for at in found(source.production)
        ]


def count_lines(sources, table):
    by_crate, by_kind = Counter(), Counter()
    for crate, tree in sources.crates.items():
        for module, _, source in tree.files:
            kind, all_lines = tree.kind(module), code_lines(source.code)
            own = code_lines(source.production) if kind == "production" else 0
            tests = code_lines(blank(source.code, source.tests))
            by_crate[crate] += own
            if kind == "production":
                by_kind["test"] += all_lines - tests
                by_kind["kit"] += tests - own
            else:
                by_kind[kind] += all_lines
    table.add(
        "production lines", sum(by_crate.values()),
        "lines in crates/*/src with code: no blanks, comments, tests, test kits",
    )
    for crate in sorted(by_crate):
        table.add(f"– {crate}", by_crate[crate])
    table.add(
        "unit tests, lines", by_kind["test"],
        "the same, of items and modules under `#[cfg(test)]` and files in `tests/` below src",
    )
    table.add(
        "test kits, lines", by_kind["kit"],
        "of items and modules built with the features `testkit` and `fuzzing` only",
    )
    for folder in ("tests", "benches", "examples"):
        lines = sum(code_lines(Source(file.read_text()).code) for file in sources.root.glob(f"crates/*/{folder}/**/*.rs"))
        table.add(f"{folder}/, lines", lines, f"of crates/*/{folder}")
    lines = sum(code_lines(Source(file.read_text()).code) for file in sources.root.glob("fuzz/**/*.rs"))
    table.add("fuzz/, lines", lines)


def count_functions(sources, table):
    lengths = [function.lines for _, function in sources.functions]
    longest = max(lengths, default=0)
    over = lambda limit: [
        f"{place} {f.name}: {f.lines}"
        for place, f in sorted(sources.functions, key=lambda pair: -pair[1].lines)
        if f.lines > limit
    ]
    table.add("functions", len(lengths), "`fn` with a body, in production code")
    table.add(
        "– median lines", int(statistics.median(lengths or [0])),
        "from the line of `fn` to that of its closing brace",
    )
    table.add("– 90th percentile", percentile(lengths, 90))
    table.add("– longest", longest, "", over(longest - 1))
    table.add("– over 40 lines", len(over(40)), "", over(40))
    table.add("– over 60 lines", len(over(60)), "", over(60))


def count_loops(sources, table):
    """One module at the top of a crate is a file, or a folder with all below it."""
    listed, crates = [], 0
    for crate, tree in sources.crates.items():
        groups = loops(Crate(tree).imports().keys())
        crates += bool(groups)
        for group in groups:
            files = sum(1 for module, _, _ in tree.production() if module and module[0] in group)
            listed.append(f"{crate}: {len(group)} modules, {files} files: {', '.join(sorted(group))}")
    table.add("crates with a loop of imports", crates, "among the modules at the top, by tools/loops.py", listed)
    modules = sum(int(re.search(r"(\d+) modules", text)[1]) for text in listed)
    table.add("– modules in loops", modules)


def count_names(sources, table):
    places = defaultdict(list)
    for _, file, source in sources.production:
        for mark in TYPE.finditer(source.production):
            places[mark[1]].append(sources.place(file, source.line(mark.start())))
    types = sum(map(len, places.values()))
    single = sum(len(found) for name, found in places.items() if len(words_of(name)) == 1)
    often = sorted((name for name in places if len(places[name]) >= 3), key=lambda name: (-len(places[name]), name))
    table.add("types", types, "`struct`, `enum`, `union`, `trait` in production code")
    table.add("– named by one word", share(single, types), "`Flow`, `Ipv4`; not `FlowTable`")
    table.add(
        "– names that three or more types have", len(often),
        "in the whole workspace",
        [f"{n}, {len(places[n])}: {', '.join(places[n])}" for n in often],
    )


def count_comments(sources, table):
    docs, why, lines = [], 0, 0
    for _, file, source in sources.production:
        comments = source.production_comments()
        docs += [(file.relative_to(sources.root), words) for words in doc_comments(comments)]
        bodies = [(function.body, function.end) for function in source.functions]
        inside = lambda comment: any(start < comment.start < end for start, end in bodies)
        why += sum(comment.text.count("\n") + 1 for comment in comments if not comment.doc and inside(comment))
        lines += code_lines(source.production)
    shown = lambda chosen: [f"{file}: {' '.join(words[:12])}" for file, words in docs if chosen(words)]
    short = shown(lambda words: len(words) <= 4)
    question = shown(lambda words: words[0] in QUESTION_WORDS)
    docs = len(docs)
    table.add("doc comments", docs, "`///` and `//!` in production files; lines in a row are one")
    table.add("– of four words or fewer", share(len(short), docs), "", short)
    table.add("– that begin with What, Whether, Who, How", share(len(question), docs), "Whose and Whom too", question)
    table.add(
        "comments that say why", share(why, lines),
        "lines of comments (no doc comments) in bodies of functions, to production lines",
    )


def count_habits(sources, table):
    tuples = [f"{place} {f.name}({p})" for place, f in sources.functions for p in tuple_parameters(f)]
    lets = sources.places(paired_lets)
    closures = sources.places(lambda code: (mark.start() for mark in CLOSURE_IT.finditer(code)))
    table.add(
        "tuple parameters", len(tuples),
        "of functions: the pattern or the type (by value or reference) is a tuple",
        tuples,
    )
    table.add("`let (a, b) = (x, y)`", len(lets), "a tuple of values is taken apart where it is made", lets)
    table.add("closures of `it`", len(closures), "with `it` as the only parameter", closures)


def count_files(sources, table):
    files = [file for tree in sources.crates.values() for _, file, _ in tree.files]
    inside = [file for file in files if file.name == "mod.rs"]
    beside = [file for file in files if file.with_suffix("").is_dir()]
    folders = Counter(file.parent.relative_to(sources.root) for file in files)
    full = [f"{folder}: {count}" for folder, count in folders.most_common() if count > 15]
    table.add(
        "modules with a folder: `name/mod.rs`", len(inside),
        "below src",
        [str(f.relative_to(sources.root)) for f in inside],
    )
    table.add("modules with a folder: `name.rs`", len(beside), "below src")
    table.add("folders of more than 15 files", len(full), "`.rs` files directly in a folder, below src", full)


def keys(source):
    """Offset and visibility of each field of the structs that have a schema."""
    code = source.production
    for mark in SECTION.finditer(code):
        before = code[code.rfind("}", 0, mark.start()) + 1 : mark.start()]
        if "JsonSchema" in before or "keys_of_" in before:
            for field in KEY.finditer(code[mark.end() : bracket_end(code, mark.end() - 1)]):
                yield mark.end() + field.start(2), field[1]


def figure_rows(code):
    """Offset of each row of a table, and True if it says where its number is counted."""
    for start, end in figure_tables(code):
        opening = code.find("{", code.find("struct", start))
        is_counted, at = "counted by" in code[start:opening], opening + 1
        for row in code[at : end - 1].split(";"):
            bare = blank(row, [mark.span() for mark in re.finditer(r"#\[[^\]]*\]", row)])
            field = re.search(r"\w+\s*:", bare)
            if field:
                yield at + field.start(), is_counted or bool(re.search(r"[^=]=(?![=>])", bare))
            at += len(row) + 1


def figure_tables(code):
    """Start and end of each table, apart from those that the macro itself makes."""
    spans = ((mark.start(), bracket_end(code, mark.end() - 1)) for mark in TABLE.finditer(code))
    return [(start, end) for start, end in spans if "$" not in code[start:end]]


def metrics_without_row(source):
    """Offset of each metric's name, apart from those in tables, of families of rows, and of what a row precedes."""
    tables = figure_tables(source.production)
    for mark in METRIC.finditer(source.text):
        at = mark.end() - 1
        is_row = mark["of_rows"] or any(start < at < end for start, end in tables)
        if source.production[at] == '"' and not is_row:
            yield mark.start()


def count_edits(sources, table):
    """A key or a figure takes two edits, its row and its use, where nothing is said again."""
    in_crate = lambda name: [(file, source) for crate, file, source in sources.production if crate == name]
    config, status, loose = [], [], []
    for file, source in in_crate("config"):
        config += [(sources.shown(file, source, at), seen == "pub") for at, seen in keys(source)]
    for file, source in in_crate("control"):
        status += [(sources.shown(file, source, at), counts) for at, counts in figure_rows(source.production)]
        loose += [sources.shown(file, source, at) for at in metrics_without_row(source)]
    longer = lambda rows: [text for text, is_short in rows if not is_short]
    table.add("keys of gateways' files", len(config), "fields of structs with a schema in crates/config")
    table.add(
        "– keys of two edits", len(config) - len(longer(config)),
        "row and use: the field is `pub`, and its user reads it there; the others are handed on in a third edit",
        longer(config),
    )  # fmt: skip
    table.add("figures of the status", len(status), "rows of `table_of_figures!` in crates/control")
    table.add(
        "– figures of two edits", len(status) - len(longer(status)),
        "row and count: the row has a counter or a source; the others are set by the gateway, in a third edit if "
        "they are counted elsewhere",
        longer(status),
    )  # fmt: skip
    table.add(
        "– metrics without a row", len(loose),
        "names `skyhop_…` in crates/control outside of the tables",
        loose,
    )


def count_rate(sources, table):
    src = sources.root / "crates/slacp/src"
    paths = {path for pattern in RATE for path in src.glob(pattern)}
    code = [source.production for crate, file, source in sources.production if file in paths]
    table.add("the rate: production lines", sum(map(code_lines, code)), f"crates/slacp/src: {', '.join(RATE)}")
    table.add("– constants", sum(len(CONST.findall(text)) for text in code), "`const` items in capitals")


def count_dependencies(sources, table):
    try:
        import tomllib  # Python 3.11
    except ImportError:
        table.add("direct dependencies", "–", "needs Python 3.11")
        return
    names = set()
    for manifest in sources.root.glob("crates/*/Cargo.toml"):
        read = tomllib.loads(manifest.read_text())
        for section in [read, *read.get("target", {}).values()]:
            names |= section.get("dependencies", {}).keys()
    names -= sources.crates.keys()
    table.add(
        "direct dependencies", len(names),
        "names in `[dependencies]` of crates/*/Cargo.toml that are not ours",
        sorted(names),
    )


def count_papers(sources, table):
    size = sum(len(file.read_bytes()) for file in sources.root.glob("docs/**/*.md"))
    table.add("documents, kB", round(size / 1000), "docs/**/*.md, in thousands of bytes")
    for name in ("docs/slacp.md", "docs/decisions.md", "CHANGELOG.md"):
        file = sources.root / name
        lines = file.read_text().count("\n") if file.exists() else 0
        table.add(f"– {name}, lines", lines)


def figures(root):
    sources, table = Sources(root), Table()
    for count in (
        count_lines, count_functions, count_loops, count_names, count_comments, count_habits, count_files, count_edits,
        count_rate, count_dependencies, count_papers,
    ):  # fmt: skip
        count(sources, table)
    return table


def at_revision(revision):
    """The figures of a revision of git."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", revision, "--", ":(glob)**/*.rs", ":(glob)**/Cargo.toml", ":(glob)**/*.md"],
        check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return figures(folder)


def markdown(columns):
    """One column a table; the rules come last."""
    yield f"| figure | {' | '.join(columns)} | counted |"
    yield f"|---|{'---:|' * len(columns)}---|"
    names = {name: rule for table in columns.values() for name, (_, rule, _) in table.rows.items()}
    for name in ordered_names(columns, names):
        values = [table.rows.get(name, ("–",))[0] for table in columns.values()]
        yield f"| {name} | {' | '.join(map(str, values))} | {names[name]} |"


def ordered_names(columns, names):
    """Rows of the longest table first; a row that only another table has follows its predecessor there."""
    order = []
    for table in columns.values():
        at = 0
        for name in table.rows:
            if name in order:
                at = order.index(name) + 1
            else:
                order.insert(at, name)
                at += 1
    return order


def examples(columns):
    for column, table in columns.items():
        for name, (_, _, found) in table.rows.items():
            if found:
                yield f"\n## {column}: {name}\n"
                yield from (f"- {text}" for text in found)


SAMPLE = {
    "crates/a/Cargo.toml": '[dependencies]\nb = { path = "../b" }\nlibc = "0.2"\n[dev-dependencies]\nproptest = "1"\n',
    "crates/a/src/lib.rs": """//! A sample.
mod one;
mod two;
#[cfg(any(test, feature = "testkit"))]
mod kit;
""",
    "crates/a/src/one.rs": r'''use crate::two::Flow;

/// What a place is.
pub struct FlowTable<'a> {
    name: &'a str,
    #[cfg(test)]
    seen: Vec<(u8, u8)>,
    count: usize, // not in a body
}

/* fn hidden() { */
impl FlowTable<'_> {
    /// Takes apart what has come, in two parts, and joins them.
    pub fn split<F: Fn(u8) -> (u8, u8)>(&self, pair: (u8, u8), (a, b): Pair, f: F, bytes: [u8; 2]) -> [u8; 2] {
        // Because RFC 1 says so:
        // always.
        let text = "fn no() { // no |it|";
        let (x, mut y) = (pair.0, f(pair.1));
        let (first, second) = (a).pair();
        bytes.iter().map(|it| it + 1 | '{' as u8).collect(r#"" } "#)
    }
}

#[cfg(test)]
mod tests {
    /// Ignored.
    fn test() {
        // Not counted.
        assert!(true);
    }
}
''',
    "crates/a/src/two.rs": "use crate::one::FlowTable;\nenum Flow { A }\ntrait State {}\n",
    "crates/a/src/kit.rs": "pub fn kit() {}\n",
    "crates/a/tests/it.rs": "fn it() {}\n",
    "crates/b/src/lib.rs": "mod state;\n",
    "crates/b/src/state/mod.rs": "struct State;\nmod x { struct State { at: (u8, u8) } }\nconst LIMIT: u8 = 1;\n",
    "crates/config/src/lib.rs": """#[derive(Deserialize, JsonSchema)]
pub struct DnsSection {
    #[serde(default)]
    pub questions: u8,
    pub(crate) servers: Vec<u8>,
}
""",
    "crates/control/src/lib.rs": """const FATES: Family = Family::counters("skyhop_fates", "fate", "Packets by fate");
table_of_figures! {
    pub struct TunnelStatus counted by TunnelCounters from(refused: u64) {
        #[serde(default)]
        sent: u64 => FATES.row("sent");
        refused: u64 = refused => gauge("skyhop_refused", "Refused").before("skyhop_fates");
    }
}
table_of_figures! {
    pub struct LinkStatus from(stats: &LinkStats) {
        lost: u64 = stats.lost;
        name: String;
    }
}
const INFO: Metric = gauge("skyhop_info", "Version");
""",
    "crates/slacp/src/rate.rs": "const LIMIT: u8 = 1;\nconst fn f() {}\n",
    "CHANGELOG.md": "# Changes\n\n- One.\n",
}
EXPECTED = {
    "production lines": 45, "– a": 18, "– b": 4, "– slacp": 2, "unit tests, lines": 8, "test kits, lines": 3,
    "tests/, lines": 1, "functions": 2, "– longest": 8, "crates with a loop of imports": 1, "– modules in loops": 2,
    "types": 8, "– named by one word": "50.0 %", "– names that three or more types have": 1, "doc comments": 3,
    "– of four words or fewer": "66.7 %", "– that begin with What, Whether, Who, How": "33.3 %",
    "comments that say why": "4.4 %", "tuple parameters": 2, "`let (a, b) = (x, y)`": 1, "closures of `it`": 1,
    "keys of gateways' files": 2, "– keys of two edits": 1, "figures of the status": 4, "– figures of two edits": 3,
    "– metrics without a row": 1, "modules with a folder: `name/mod.rs`": 1, "the rate: production lines": 2,
    "– constants": 1, "direct dependencies": 1, "– CHANGELOG.md, lines": 3,
}  # fmt: skip


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SAMPLE.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text)
        rows = figures(folder).rows
    wrong = [f"{n}: {rows[n][0]} instead of {v}" for n, v in EXPECTED.items() if rows[n][0] not in (v, "–")]
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("-v", dest="verbose", action="store_true")
    options.add_argument("--json", action="store_true")
    options.add_argument("--at", metavar="REV", action="append", default=[])
    options.add_argument("--self-test", action="store_true")
    given = options.parse_args()
    if given.self_test:
        return self_test()
    with ProcessPoolExecutor() as pool:
        columns = dict(zip(given.at, pool.map(at_revision, given.at))) or {"now": figures(ROOT)}
    if given.json:
        values = {c: {n: value for n, (value, _, _) in table.rows.items()} for c, table in columns.items()}
        print(json.dumps(values, indent=2, ensure_ascii=False))
        return 0
    print("\n".join(markdown(columns)))
    if given.verbose:
        print("\n".join(examples(columns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
