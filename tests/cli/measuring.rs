//! Speed, in the forms that people and programs read.

use crate::succeed;

#[test]
fn bench_prints_its_table() {
    let table = succeed("bench -p 4,0 -n 2 -d 0,8 -r 2").out;
    let tests: Vec<&str> = table.lines().skip(2).map(|row| row.split('|').nth(2).unwrap().trim()).collect();
    assert_eq!(tests, ["pp4", "tg2", "pp4 @ d8", "tg2 @ d8"], "{table}");
    assert!(table.lines().skip(2).all(|row| row.contains(" ± ")), "{table}");
}
