//! Stored blocks to numbers, bit for bit as the `gguf` Python package has them (see `make_golden.py`).

use plimsoll_kernels::{Format, dequantize_row};

const GOLDEN: &[u8] = include_bytes!("data/dequant.golden");

/// The next `n` bytes.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, tail) = bytes.split_at(n);
    *bytes = tail;
    head
}

fn u32_at(bytes: &mut &[u8]) -> u32 {
    u32::from_le_bytes(take(bytes, 4).try_into().expect("four bytes"))
}

#[test]
fn every_format_has_the_definitions_bits() {
    let mut seen = Vec::new();
    let mut bytes = GOLDEN;
    while !bytes.is_empty() {
        let format = Format::from_ggml_id(u32_at(&mut bytes)).expect("a format of ours");
        let n_elements = u32_at(&mut bytes) as usize;
        let n_bytes = u32_at(&mut bytes) as usize;
        let stored = take(&mut bytes, n_bytes);
        let expect: Vec<u32> = (0..n_elements).map(|_| u32_at(&mut bytes)).collect();
        let mut got = vec![0.0; n_elements];
        dequantize_row(format, stored, &mut got);
        let got: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
        assert_eq!(got, expect, "{format}");
        seen.push(format);
    }
    assert_eq!(seen, Format::all().collect::<Vec<_>>(), "a record for every format");
}

#[test]
#[should_panic(expected = "a Q8_0 row of 64 elements")]
fn a_row_of_the_wrong_length_is_a_bug_of_the_caller() {
    dequantize_row(Format::Q8_0, &[0; 34], &mut [0.0; 64]);
}
