//! The erasure code as specified in `docs/slacp.md` (The erasure code), implemented slowly: a field
//! by tables, and Lagrange interpolation.

use std::sync::LazyLock;

/// `x^16 + x^5 + x^3 + x^2 + 1`.
const POLYNOMIAL: u32 = 0x1_002d;
/// The field element of each bit, in polynomial representation.
const BASIS: [u16; 16] = [
    0x0001, 0xacca, 0x3c0e, 0x163e, 0xc582, 0xed2e, 0x914c, 0x4012, 0x6c98, 0x10d8, 0x6a72, 0xb900,
    0xfdb8, 0xfb34, 0xff38, 0x991e,
];

/// The product of two polynomials modulo [`POLYNOMIAL`].
fn polynomial_product(a: u16, b: u16) -> u16 {
    let shifted = |bit: u32| if b >> bit & 1 == 1 { u32::from(a) << bit } else { 0 };
    let long = (0..16).map(shifted).fold(0, |sum, term| sum ^ term);
    let reduce = |long: u32, bit: u32| {
        if long >> bit & 1 == 1 { long ^ POLYNOMIAL << (bit - 16) } else { long }
    };
    (16..32).rev().fold(long, reduce) as u16
}

/// Logarithms to base x of elements in shard representation.
struct Tables {
    log: Vec<u32>,
    exp: Vec<u16>,
}

const ORDER: u32 = 65_535;

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let value = |element: u16| {
        (0..16).filter(|bit| element >> bit & 1 == 1).fold(0, |sum, bit| sum ^ BASIS[bit])
    };
    let mut element_of = vec![0; 1 << 16];
    (0..=u16::MAX).for_each(|element| element_of[usize::from(value(element))] = element);
    let (mut log, mut exp) = (vec![0; 1 << 16], Vec::new());
    let mut power = 1;
    for exponent in 0..ORDER {
        let element = element_of[usize::from(power)];
        log[usize::from(element)] = exponent;
        exp.push(element);
        power = polynomial_product(power, 2);
    }
    assert_eq!(power, 1, "x generates the field");
    Tables { log, exp }
});

fn log(a: u16) -> u32 {
    assert_ne!(a, 0);
    TABLES.log[usize::from(a)]
}

fn product(a: u16, b: u16) -> u16 {
    if a == 0 || b == 0 { 0 } else { TABLES.exp[((log(a) + log(b)) % ORDER) as usize] }
}

fn quotient(a: u16, b: u16) -> u16 {
    if a == 0 { 0 } else { TABLES.exp[((log(a) + ORDER - log(b)) % ORDER) as usize] }
}

/// The Lagrange coefficient of the value at `points[at]` for the value at `x`.
fn lagrange(points: core::ops::Range<u16>, at: u16, x: u16) -> u16 {
    let others = || points.clone().filter(|point| *point != at);
    let numerator = others().fold(1, |all, point| product(all, x ^ point));
    let denominator = others().fold(1, |all, point| product(all, at ^ point));
    quotient(numerator, denominator)
}

/// The factor of each original in each repair: `repairs` rows of `count`.
pub fn matrix(count: u16, repairs: u16) -> Vec<Vec<u16>> {
    let c = count.next_power_of_two().min(repairs.next_power_of_two());
    let factor = |repair: u16, original: u16| {
        if count.next_power_of_two() <= repairs.next_power_of_two() {
            lagrange(0..c, original, c + repair)
        } else {
            let group = original / c + 1;
            lagrange(group * c..(group + 1) * c, c + original, repair)
        }
    };
    let row = |repair| (0..count).map(|original| factor(repair, original)).collect();
    (0..repairs).map(row).collect()
}

/// The elements of a shard, which stores up to 32 low bytes and then their high bytes.
pub fn elements(shard: &[u8]) -> Vec<u16> {
    let pairs = shard.chunks(64).flat_map(|chunk| {
        let (low, high) = chunk.split_at(chunk.len() / 2);
        low.iter().zip(high).map(|(low, high)| u16::from_le_bytes([*low, *high]))
    });
    pairs.collect()
}

/// The shard of these elements.
pub fn shard(elements: &[u16]) -> Vec<u8> {
    let chunk = |elements: &[u16]| {
        let bytes = |place: usize| elements.iter().map(move |e| e.to_le_bytes()[place]);
        bytes(0).chain(bytes(1)).collect::<Vec<u8>>()
    };
    elements.chunks(32).flat_map(chunk).collect()
}

/// The repairs of these originals.
pub fn repairs(originals: &[Vec<u8>], repairs: usize) -> Vec<Vec<u8>> {
    let originals: Vec<Vec<u16>> = originals.iter().map(|shard| elements(shard)).collect();
    let matrix = matrix(originals.len() as u16, repairs as u16);
    let repair = |row: &Vec<u16>| {
        let mut sum = vec![0; originals[0].len()];
        for (original, factor) in originals.iter().zip(row) {
            sum.iter_mut().zip(original).for_each(|(sum, e)| *sum ^= product(*e, *factor));
        }
        shard(&sum)
    };
    matrix.iter().map(repair).collect()
}

/// Restores originals that are `None` by elimination, from as many of the `total` repairs, given
/// with their indices.
pub fn restore(
    originals: &[Option<Vec<u8>>],
    repairs: &[(usize, Vec<u8>)],
    total: usize,
) -> Vec<Vec<u8>> {
    let matrix = matrix(originals.len() as u16, total as u16);
    let missing: Vec<usize> = (0..originals.len()).filter(|i| originals[*i].is_none()).collect();
    // A row of factors of the missing originals, and their sum.
    let equation = |(index, shard): &(usize, Vec<u8>)| {
        let mut sum = elements(shard);
        for (original, factor) in originals.iter().zip(&matrix[*index]) {
            let Some(original) = original else { continue };
            sum.iter_mut().zip(elements(original)).for_each(|(sum, e)| *sum ^= product(e, *factor));
        }
        (missing.iter().map(|i| matrix[*index][*i]).collect::<Vec<u16>>(), sum)
    };
    let mut rows: Vec<_> = repairs.iter().map(equation).collect();
    for column in 0..missing.len() {
        let pivot = (column..rows.len()).find(|row| rows[*row].0[column] != 0).unwrap();
        rows.swap(column, pivot);
        let (factors, sum) = &mut rows[column];
        let lead = factors[column];
        factors.iter_mut().chain(sum).for_each(|e| *e = quotient(*e, lead));
        let (factors, sum) = rows[column].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let by = row.0[column];
            row.0.iter_mut().zip(&factors).for_each(|(e, f)| *e ^= product(*f, by));
            row.1.iter_mut().zip(&sum).for_each(|(e, f)| *e ^= product(*f, by));
        }
    }
    rows.iter().take(missing.len()).map(|(_, sum)| shard(sum)).collect()
}
