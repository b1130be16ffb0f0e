use super::*;

fn table() -> Table {
    let columns =
        [Column::left(""), Column::right("time\ns"), Column::right("share ¹"), Column::left("")];
    let mut table = Table::new(columns).title("Download of 20 MB, which is a long title");
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
    let mut table = Table::new([Column::left("verdict"), Column::left("check")]).indent(2);
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
    let mut table = Table::new([Column::left("").at_least(6), Column::right("")]);
    assert_eq!((table.to_string(), table.is_empty()), (String::new(), true));
    table.row(["geo", "1"]);
    assert_eq!((table.to_string(), table.is_empty()), ("geo     1\n".to_owned(), false));
}

#[test]
fn aligned_tables_share_their_widths() {
    let mut narrow = Table::new([Column::left("a"), Column::right("b")]);
    narrow.row(["x", "1"]);
    let mut wide = Table::new([Column::left("long name"), Column::right("b"), Column::left("c")]);
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
    let mut table = Table::new([Column::left("<way>"), Column::right("s")]);
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
    Table::new([Column::left("")]).row(["a", "b"]);
}

#[test]
fn markdown_escapes_what_separates_cells_and_rows() {
    let mut table = Table::new([Column::left("a|b")]);
    table.row(["one | two\nthree"]);
    assert_eq!(table.markdown(), "| a\\|b |\n|---|\n| one \\| two three |\n");
}
