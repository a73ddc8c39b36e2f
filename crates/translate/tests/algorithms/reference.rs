//! Inputs and results of algorithms of many kinds, of which the kernels are in several languages.

use crate::random::words;

/// A launch of threadgroups of 64 threads.
pub struct Algorithm {
    pub name: &'static str,
    pub groups: usize,
    pub input: Vec<u32>,
    pub n: u32,
    pub expected: Vec<u32>,
}

fn bytes(words: &[u32]) -> Vec<u32> {
    words.iter().flat_map(|word| word.to_le_bytes()).map(u32::from).collect()
}

pub fn all() -> Vec<Algorithm> {
    vec![
        spmv(),
        table(),
        rng(),
        search(),
        lcs(),
        sobel(),
        scan(),
        bitonic(),
        histogram(),
        life(),
        crc(),
        chacha(),
        floyd(),
        base64(),
        mandelbrot(),
    ]
}

/// A product of a sparse matrix of 150 compressed rows, some of which are empty.
fn spmv() -> Algorithm {
    let n = 150;
    let mut random = words(20_000, 1).into_iter();
    let mut next = |below: u32| random.next().map_or(0, |word| word % below);
    let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for _ in 0..n {
        for _ in 0..next(12) {
            columns.push(next(n));
            values.push(next(1000));
        }
        offsets.push(columns.len() as u32);
    }
    let x: Vec<u32> = (0..n).map(|_| next(256)).collect();
    let row = |row: usize| {
        (offsets[row]..offsets[row + 1]).map(|k| values[k as usize] * x[columns[k as usize] as usize]).sum()
    };
    let expected = (0..n as usize).map(row).collect();
    Algorithm { name: "spmv", groups: 3, n, expected, input: [offsets, columns, values, x].concat() }
}

/// How often each key comes, by a hash table in threadgroup memory.
fn table() -> Algorithm {
    let input: Vec<u32> =
        words(400, 2).into_iter().map(|word| (word % 350).wrapping_mul(0x0100_0193)).collect();
    let expected =
        input.iter().map(|key| input.iter().filter(|other| *other == key).count() as u32).collect();
    Algorithm { name: "table", groups: 1, n: 400, expected, input }
}

/// 100 random numbers of each thread.
fn rng() -> Algorithm {
    let input = words(128, 3);
    let last = |i: u32| {
        let mut state = [input[i as usize], 2, 3, i];
        let (mut weyl, mut last) = (i, 0);
        for _ in 0..100 {
            let mut t = state[3];
            state = [state[0], state[0], state[1], state[2]];
            t ^= t >> 2;
            t ^= t << 1;
            t ^= state[1] ^ (state[1] << 4);
            state[0] = t;
            weyl = u32::wrapping_add(weyl, 362_437);
            last ^= t.wrapping_add(weyl);
        }
        last
    };
    let expected = (0..128).map(last).collect();
    Algorithm { name: "rng", groups: 2, n: 128, expected, input }
}

/// Where `abcab` begins in a text, also where the text ends in a part of it.
fn search() -> Algorithm {
    let mut text: Vec<u8> = words(190, 4).iter().map(|word| b"aabbcxyabc"[*word as usize % 10]).collect();
    for at in [0, 3, 17, 100] {
        text[at..at + 5].copy_from_slice(b"abcab");
    }
    text.extend(b"abcabcabca");
    let expected = (0..text.len()).map(|at| u32::from(text[at..].starts_with(b"abcab"))).collect();
    let input = text.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    Algorithm { name: "search", groups: 4, n: 200, expected, input }
}

/// The longest common subsequences of 64 bytes and the beginnings of another 64, along diagonals.
fn lcs() -> Algorithm {
    let input: Vec<u32> = words(32, 5).into_iter().map(|word| word & 0x0303_0303).collect();
    let text = bytes(&input);
    let mut lengths = vec![vec![0; 65]; 65];
    for row in 0..64 {
        for column in 0..64 {
            lengths[row + 1][column + 1] = match text[row] == text[64 + column] {
                true => lengths[row][column] + 1,
                false => u32::max(lengths[row][column + 1], lengths[row + 1][column]),
            };
        }
    }
    let expected = (0..64).map(|row| lengths[row + 1][64]).collect();
    Algorithm { name: "lcs", groups: 1, n: 64, expected, input }
}

/// Edges of an image of 40 x 32 bytes.
fn sobel() -> Algorithm {
    let input = words(40 * 32 / 4, 6);
    let image: Vec<i32> = bytes(&input).into_iter().map(|byte| byte as i32).collect();
    let pixel = |x: i32, y: i32| image[(y.clamp(0, 31) * 40 + x.clamp(0, 39)) as usize];
    let edge = |at: i32| {
        let (x, y) = (at % 40, at / 40);
        let (mut gx, mut gy) = (0, 0);
        for d in -1..=1 {
            let weight = 2 - d * d;
            gx += weight * (pixel(x + 1, y + d) - pixel(x - 1, y + d));
            gy += weight * (pixel(x + d, y + 1) - pixel(x + d, y - 1));
        }
        (gx.abs() + gy.abs()).min(255) as u32
    };
    let expected = (0..40 * 32).map(edge).collect();
    Algorithm { name: "sobel", groups: 20, n: 40, expected, input }
}

/// Sums of what is before each number, in blocks of 128.
fn scan() -> Algorithm {
    let input = words(384, 7);
    let sums = |block: &[u32]| -> Vec<u32> {
        (0..128).map(|end| block[..end].iter().fold(0, |sum, word| u32::wrapping_add(sum, *word))).collect()
    };
    let expected = input.chunks(128).flat_map(sums).collect();
    Algorithm { name: "scan", groups: 3, n: 384, expected, input }
}

/// Blocks of 64 numbers, sorted.
fn bitonic() -> Algorithm {
    let input = words(256, 8);
    let mut expected = input.clone();
    expected.chunks_mut(64).for_each(<[u32]>::sort_unstable);
    Algorithm { name: "bitonic", groups: 4, n: 256, expected, input }
}

/// How often each byte comes.
fn histogram() -> Algorithm {
    let input = words(1000, 9);
    let mut expected = vec![0; 256];
    bytes(&input).into_iter().for_each(|byte| expected[byte as usize] += 1);
    Algorithm { name: "histogram", groups: 3, n: 1000, expected, input }
}

/// The next generation of 64 rows of 32 cells, whose edges meet.
fn life() -> Algorithm {
    let input = words(64, 10);
    let alive = |x: i32, y: i32| input[y.rem_euclid(64) as usize] >> x.rem_euclid(32) & 1;
    let row = |y: i32| {
        (0..32).fold(0, |row, x| {
            let around = |dy: i32| alive(x - 1, y + dy) + alive(x + 1, y + dy);
            let neighbors = around(-1) + around(0) + around(1) + alive(x, y - 1) + alive(x, y + 1);
            row | u32::from(neighbors == 3 || neighbors == 2 && alive(x, y) == 1) << x
        })
    };
    Algorithm { name: "life", groups: 1, n: 64, expected: (0..64).map(row).collect(), input }
}

/// CRC-32 of each 16 bytes.
fn crc() -> Algorithm {
    let input = words(4 * 64, 11);
    let one = |block: &[u32]| {
        let step = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        !bytes(block).into_iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ byte, |crc, _| step(crc)))
    };
    let expected = input.chunks(4).map(one).collect();
    Algorithm { name: "crc", groups: 1, n: 64, expected, input }
}

/// Blocks of ChaCha20.
fn chacha() -> Algorithm {
    let input = words(11, 12);
    let block = |counter: u32| {
        let mut start = vec![0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
        start.extend(&input[..8]);
        start.push(counter);
        start.extend(&input[8..]);
        let mut x = start.clone();
        let rounds = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
        let diagonals = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];
        for _ in 0..10 {
            for [a, b, c, d] in rounds.into_iter().chain(diagonals) {
                for (to, with, other, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
                    x[to] = u32::wrapping_add(x[to], x[with]);
                    x[other] = (x[other] ^ x[to]).rotate_left(by);
                }
            }
        }
        x.into_iter().zip(start).map(|(a, b)| u32::wrapping_add(a, b)).collect::<Vec<u32>>()
    };
    let expected = (0..64).flat_map(block).collect();
    Algorithm { name: "chacha", groups: 1, n: 64, expected, input }
}

/// Shortest ways between 8 nodes, of which some are not connected.
fn floyd() -> Algorithm {
    let mut input: Vec<u32> =
        words(64, 13).iter().map(|word| if word % 3 == 0 { word >> 20 } else { u32::MAX }).collect();
    (0..8).for_each(|node| input[9 * node] = 0);
    let mut expected = input.clone();
    for k in 0..8 {
        for at in 0..64 {
            let way = expected[at / 8 * 8 + k].saturating_add(expected[8 * k + at % 8]);
            expected[at] = expected[at].min(way);
        }
    }
    Algorithm { name: "floyd", groups: 1, n: 8, expected, input }
}

/// Base64 of each 3 bytes.
fn base64() -> Algorithm {
    let input = words(48, 14);
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = bytes(&input);
    let letters = |x: &[u32; 3]| {
        let word = x[0] << 16 | x[1] << 8 | x[2];
        u32::from_le_bytes([18, 12, 6, 0].map(|shift| alphabet[(word >> shift & 63) as usize]))
    };
    let expected = text.as_chunks::<3>().0.iter().map(letters).collect();
    Algorithm { name: "base64", groups: 1, n: 64, expected, input }
}

/// Steps of points of a plane, in numbers with 12 bits behind the point.
fn mandelbrot() -> Algorithm {
    let steps = |at: i32| {
        let (cx, cy) = (at % 128 * 96 - 8192, at / 128 * 192 - 3072);
        let (mut x, mut y, mut count) = (0_i32, 0_i32, 0);
        loop {
            (x, y) = (
                (x.wrapping_mul(x).wrapping_sub(y.wrapping_mul(y)) >> 12) + cx,
                (x.wrapping_mul(y) >> 11) + cy,
            );
            count += 1;
            let size = (x.wrapping_mul(x) as u32).wrapping_add(y.wrapping_mul(y) as u32);
            if count > 50 || size >= 4 << 24 {
                return count;
            }
        }
    };
    let expected = (0..128 * 32).map(steps).collect();
    Algorithm { name: "mandelbrot", groups: 64, n: 128, expected, input: vec![0] }
}
