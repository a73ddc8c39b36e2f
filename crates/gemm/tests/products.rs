//! Products and convolutions at every level of instructions, compared with sums in `f64`.
#![allow(unsafe_code)] // addresses of the vectors below

use elinvar_gemm::phases::{Phases, SLACK};
use elinvar_gemm::{
    Activation, Bias, Block, Element, Left, Level, Lines, Output, Right, multiply, pack, packed_len,
};

/// Numbers from -1 to 1, in steps of 2^-10.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|n| ((n * 7919 + seed * 104_729) % 2048) as f32 / 1024.0 - 1.0).collect()
}

fn output(first: *mut f32, columns: usize) -> Output {
    Output {
        first: first.cast(),
        element: Element::F32,
        row: columns as isize,
        line: 0,
        column: 1,
        pitch: columns,
        width: columns,
        alpha: 1.0,
        beta: 0.0,
        bias: Bias::None,
        activation: Activation::None,
    }
}

#[test]
fn products_of_any_size_in_blocks_of_terms() {
    for level in Level::all() {
        for [rows, columns, terms] in
            [[1, 1, 1], [12, 32, 5], [13, 33, 40], [47, 95, 17], [5, 16, 64], [25, 17, 3]]
        {
            for blocks in [1, 2, 3] {
                let (left, right) = (numbers(rows * terms, 1), numbers(terms * columns, 2));
                let mut result = numbers(rows * columns, 3);
                let bias = numbers(columns, 4);
                let before = result.clone();
                let [tall, wide] = [level.rows(), level.columns()];
                let mut sums = vec![f32::NAN; rows.next_multiple_of(tall) * columns.next_multiple_of(wide)];
                let output = Output {
                    alpha: 0.5,
                    beta: 2.0,
                    bias: Bias::Columns(bias.as_ptr()),
                    activation: Activation::Relu,
                    ..output(result.as_mut_ptr(), columns)
                };
                let length = terms.div_ceil(blocks);
                for begin in (0..terms).step_by(length) {
                    let terms_of_block = length.min(terms - begin);
                    let mut of_left = vec![f32::NAN; packed_len(rows, terms_of_block, tall)];
                    let mut of_right = vec![f32::NAN; packed_len(columns, terms_of_block, wide)];
                    // SAFETY: the vectors have the elements of the matrices and panels.
                    unsafe {
                        let lines = Lines { first: left.as_ptr().add(begin), line: terms as isize, term: 1 };
                        pack(lines, rows, terms_of_block, tall, of_left.as_mut_ptr());
                        let first = right.as_ptr().add(begin * columns);
                        let lines = Lines { first, line: 1, term: columns as isize };
                        pack(lines, columns, terms_of_block, wide, of_right.as_mut_ptr());
                        let block = Block {
                            left: Left::Panels(of_left.as_ptr()),
                            right: Right::Panels(of_right.as_ptr()),
                            at: [0, 0],
                            size: [rows, columns],
                            terms: terms_of_block,
                            sums: if terms_of_block == terms {
                                std::ptr::null_mut()
                            } else {
                                sums.as_mut_ptr()
                            },
                            is_first: begin == 0,
                            is_last: begin + terms_of_block == terms,
                        };
                        multiply(level, &block, &output);
                    }
                }
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let products = (0..terms)
                        .map(|k| f64::from(left[row * terms + k]) * f64::from(right[k * columns + column]));
                    let sum = 0.5 * products.sum::<f64>()
                        + 2.0 * f64::from(before[row * columns + column])
                        + f64::from(bias[column]);
                    let got = f64::from(result[row * columns + column]);
                    // One rounding of each partial sum, which is below the number of terms.
                    let tolerance = (terms + 4) as f64 * (terms + 4) as f64 * 2f64.powi(-24);
                    assert!(
                        (got - sum.max(0.0)).abs() <= tolerance,
                        "{level:?} {row} {column}: {got}, expected {sum}"
                    );
                }
            }
        }
    }
}

/// Rows that are read where they are, and tiles that are written from registers: whole, with a part of a vector, and with few rows.
#[test]
fn rows_in_place_and_contiguous_results() {
    let cases = [[12, 32, 40], [4, 16, 7], [8, 64, 33], [28, 48, 5], [32, 24, 16], [16, 100, 3], [24, 9, 1]];
    for level in Level::all() {
        let wide = level.columns();
        for (number, [rows, columns, terms]) in cases.into_iter().enumerate() {
            for how in 0..12 {
                let (gap, alpha, beta) = (number % 3, [1.0, -0.5][how & 1], [0.0, 2.0][how >> 1 & 1]);
                let (left, right) = (numbers(rows * (terms + gap), 1), numbers(terms * columns, 2));
                let (mut result, bias) = (numbers(rows * (columns + gap), 3), numbers(rows.max(columns), 4));
                let before = result.clone();
                let bias_of = how / 4;
                let output = Output {
                    row: (columns + gap) as isize,
                    alpha,
                    beta,
                    bias: [Bias::None, Bias::Rows(bias.as_ptr()), Bias::Columns(bias.as_ptr())][bias_of],
                    ..output(result.as_mut_ptr(), columns)
                };
                let mut of_right = vec![f32::NAN; packed_len(columns, terms, wide)];
                // SAFETY: the vectors have the elements of the matrices and panels.
                unsafe {
                    let lines = Lines { first: right.as_ptr(), line: 1, term: columns as isize };
                    pack(lines, columns, terms, wide, of_right.as_mut_ptr());
                    let block = Block {
                        left: Left::Rows { first: left.as_ptr(), row: (terms + gap) as isize },
                        right: Right::Panels(of_right.as_ptr()),
                        at: [0, 0],
                        size: [rows, columns],
                        terms,
                        sums: std::ptr::null_mut(),
                        is_first: true,
                        is_last: true,
                    };
                    multiply(level, &block, &output);
                }
                for (place, (got, before)) in result.iter().zip(&before).enumerate() {
                    let (row, column) = (place / (columns + gap), place % (columns + gap));
                    if column >= columns {
                        assert_eq!(got, before, "{level:?} behind row {row}");
                        continue;
                    }
                    let product = |k: usize| {
                        f64::from(left[row * (terms + gap) + k]) * f64::from(right[k * columns + column])
                    };
                    let sum: f64 = (0..terms).map(product).sum();
                    let bias = [0.0, bias[row.min(bias.len() - 1)], bias[column]][bias_of];
                    let wanted =
                        f64::from(alpha) * sum + f64::from(beta) * f64::from(*before) + f64::from(bias);
                    // As above.
                    let tolerance = (terms + 4) as f64 * (terms + 4) as f64 * 2f64.powi(-24);
                    assert!(
                        (f64::from(*got) - wanted).abs() <= tolerance,
                        "{level:?} {rows}x{columns}x{terms} {how} {row} {column}: {got}, expected {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn convolutions_by_offsets() {
    let cases = [
        // Image, window, stride, dilation, padding, channels, outputs.
        ([9, 11], [3, 3], [1, 1], [1, 1], [1, 1], 2, 5),
        ([9, 11], [3, 2], [2, 3], [1, 1], [2, 1], 3, 13),
        ([12, 40], [2, 3], [1, 2], [3, 2], [0, 4], 1, 4),
        ([5, 5], [1, 1], [2, 2], [1, 1], [0, 0], 4, 3),
        ([1, 64], [1, 5], [1, 1], [1, 7], [0, 20], 2, 12),
        ([2, 3], [5, 5], [3, 1], [1, 2], [4, 8], 1, 1),
    ];
    for (image, window, stride, dilation, padding, channels, outputs) in cases {
        let positions =
            [0, 1].map(|n| (image[n] + 2 * padding[n] - ((window[n] - 1) * dilation[n] + 1)) / stride[n] + 1);
        let phases = Phases { image, window, stride, dilation, padding, positions };
        let terms = channels * window[0] * window[1];
        let (source, weights) = (numbers(channels * image[0] * image[1], 1), numbers(outputs * terms, 2));
        let mut arranged = vec![f32::NAN; channels * phases.channel_len() + SLACK];
        let of_weights = |k: usize| [k / (window[0] * window[1]), k / window[1] % window[0], k % window[1]];
        let offsets: Vec<usize> =
            (0..terms).map(of_weights).map(|[c, i, j]| phases.offset(c, i, j)).collect();
        for level in Level::all() {
            let mut result = vec![f32::NAN; outputs * positions[0] * positions[1]];
            let mut of_left = vec![f32::NAN; packed_len(outputs, terms, level.rows())];
            let pitch = phases.size()[1];
            // SAFETY: the vectors have the elements of images, panels and result.
            unsafe {
                for channel in 0..channels {
                    let first = source.as_ptr().add(channel * image[0] * image[1]).cast();
                    let to = arranged.as_mut_ptr().add(channel * phases.channel_len());
                    phases.arrange(Element::F32, first, [image[1] as isize, 1], to);
                }
                let lines = Lines { first: weights.as_ptr(), line: terms as isize, term: 1 };
                pack(lines, outputs, terms, level.rows(), of_left.as_mut_ptr());
                let output = Output {
                    row: (positions[0] * positions[1]) as isize,
                    line: positions[1] as isize,
                    pitch,
                    width: positions[1],
                    ..output(result.as_mut_ptr(), 1)
                };
                let block = Block {
                    left: Left::Panels(of_left.as_ptr()),
                    right: Right::Offsets { first: arranged.as_ptr(), offsets: &offsets },
                    at: [0, 0],
                    size: [outputs, phases.columns()],
                    terms,
                    sums: std::ptr::null_mut(),
                    is_first: true,
                    is_last: true,
                };
                multiply(level, &block, &output);
            }
            for (n, got) in result.iter().enumerate() {
                let (o, y, x) =
                    (n / (positions[0] * positions[1]), n / positions[1] % positions[0], n % positions[1]);
                let pixel = |k: usize| {
                    let [c, i, j] = of_weights(k);
                    let row = (y * stride[0] + i * dilation[0]).checked_sub(padding[0])?;
                    let column = (x * stride[1] + j * dilation[1]).checked_sub(padding[1])?;
                    let inside = row < image[0] && column < image[1];
                    inside.then(|| f64::from(source[(c * image[0] + row) * image[1] + column]))
                };
                let sum: f64 =
                    (0..terms).map(|k| f64::from(weights[o * terms + k]) * pixel(k).unwrap_or(0.0)).sum();
                assert!(
                    (f64::from(*got) - sum).abs() < 1e-5,
                    "{level:?} {image:?} {o} {y} {x}: {got}, expected {sum}"
                );
            }
        }
    }
}
