use super::*;

fn table() -> TextTable {
    let columns = [
        TableColumn::left(""),
        TableColumn::right("time\ns"),
        TableColumn::right("share ¹"),
        TableColumn::left(""),
    ];
    let mut table = TextTable::new(columns).title("Download of 20 MB, which is a long title");
    table.row(["plain CUBIC", "> 20.00", "", "unfinished"]);
    table.row(["skyhop", "4.40", "96 %"]);
    table
}

#[test]
fn columns_are_aligned_and_titles_are_not() {
    let expected = "\
Download of 20 MB, which is a long title
                time  share ¹
                   s
plain CUBIC  > 20.00           unfinished
skyhop          4.40     96 %
";
    assert_eq!(table().to_string(), expected);
}

#[test]
fn notes_stand_between_the_rows_and_are_indented_like_them() {
    let mut table =
        TextTable::new([TableColumn::left("verdict"), TableColumn::left("check")]).indent(2);
    table.row(["ok", "kernel"]);
    table.note("-> a line that is longer than the columns");
    table.row(["fail", "tun"]);
    let expected = "  \
  verdict  check
  ok       kernel
  -> a line that is longer than the columns
  fail     tun
";
    assert_eq!(table.to_string(), expected);
}

#[test]
fn without_names_there_is_no_head() {
    let mut table = TextTable::new([TableColumn::left("").at_least(6), TableColumn::right("")]);
    assert_eq!((table.to_string(), table.is_empty()), (String::new(), true));
    table.row(["geo", "1"]);
    assert_eq!((table.to_string(), table.is_empty()), ("geo     1\n".to_owned(), false));
}

#[test]
fn aligned_tables_share_their_widths() {
    let mut narrow = TextTable::new([TableColumn::left("a"), TableColumn::right("b")]);
    narrow.row(["x", "1"]);
    let mut wide = TextTable::new([
        TableColumn::left("long name"),
        TableColumn::right("b"),
        TableColumn::left("c"),
    ]);
    wide.row(["y", "1000", "z"]);
    let expected = "\
a             b
x             1

long name     b  c
y          1000  z

";
    assert_eq!(aligned(&[narrow, wide]), expected);
}

#[test]
fn markdown_has_names_and_alignment() {
    let expected = "\
Download of 20 MB, which is a long title

|  | time s | share ¹ |  |
|---|--:|--:|---|
| plain CUBIC | > 20.00 |  | unfinished |
| skyhop | 4.40 | 96 % |  |
";
    assert_eq!(table().markdown(), expected);
}

#[test]
fn html_is_escaped_and_marks_numbers() {
    let mut table = TextTable::new([TableColumn::left("<way>"), TableColumn::right("s")]);
    table.row(["a & b", "1"]);
    table.note("x < y");
    let expected = "\
<table>
<tr><th>&lt;way&gt;</th><th class=\"number\">s</th></tr>
<tr><td>a &amp; b</td><td class=\"number\">1</td></tr>
<tr><td colspan=\"2\">x &lt; y</td></tr>
</table>
";
    assert_eq!(table.html(), expected);
}

#[test]
#[should_panic(expected = "a column for each cell")]
fn a_cell_too_many_is_a_bug() {
    TextTable::new([TableColumn::left("")]).row(["a", "b"]);
}

#[test]
fn markdown_escapes_what_separates_cells_and_rows() {
    let mut table = TextTable::new([TableColumn::left("a|b")]);
    table.row(["one | two\nthree"]);
    assert_eq!(table.markdown(), "| a\\|b |\n|---|\n| one \\| two three |\n");
}
