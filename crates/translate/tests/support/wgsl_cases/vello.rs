//! Shaders of vello, a renderer of vector graphics: scans over tags, and bounding boxes.

use super::{Case, Step, bytes, exactly, words};

/// Words of a `TagMonoid`, which are added.
type Tag = [u32; 5];

fn tag(word: u32) -> Tag {
    let mut all = [0; 5];
    for byte in word.to_le_bytes().map(u32::from) {
        let points = byte & 3;
        let coordinates = if byte & 8 == 0 { 1 } else { 2 };
        all[0] += byte >> 5 & 1;
        all[1] += u32::from(points > 0);
        all[2] += (points + (byte >> 2 & 1)) * coordinates;
        all[3] += (byte >> 6 & 1) * 2;
        all[4] += byte >> 4 & 1;
    }
    all
}

fn sum(tags: &[Tag]) -> Tag {
    tags.iter().fold([0; 5], |sum, tag| std::array::from_fn(|i| sum[i] + tag[i]))
}

/// The sums of what is before each tag.
fn before(tags: &[Tag]) -> Vec<Tag> {
    let mut running = [0; 5];
    let next = |tag: &Tag| {
        let with = sum(&[running, *tag]);
        std::mem::replace(&mut running, with)
    };
    tags.iter().map(next).collect()
}

/// `Config`, with 22 words; `set` has indices and values.
fn config(set: &[(usize, u32)]) -> Vec<u8> {
    let mut all = [0_u32; 22];
    set.iter().for_each(|(index, value)| all[*index] = *value);
    bytes(&all)
}

const N_DRAWOBJ: usize = 5;
const N_PATH: usize = 6;
const PATHTAG_BASE: usize = 9;
const DRAWTAG_BASE: usize = 11;

pub fn cases() -> Vec<Case> {
    let mut cases = tags();
    cases.extend([boxes(), backdrop(), backdrop_dyn(), draws()]);
    cases
}

/// Sums of workgroups of 256 tags, and scans with them, for scenes small and large.
fn tags() -> Vec<Case> {
    let file = "vello_shaders-0.11.0/shader.pathtag_reduce.wgsl";
    let base = 7;
    let scene = words(base + 1024, 3);
    let tags: Vec<Tag> = scene[base..].iter().map(|word| tag(*word)).collect();
    let sums: Vec<Tag> = tags.chunks(256).map(sum).collect();
    let scans = before(&tags);
    let config = config(&[(PATHTAG_BASE, base as u32)]);
    let reduce = || Step {
        file,
        kernel: "main",
        groups: [4, 1, 1],
        arrays: vec!["scene", "reduced"],
        ..Step::default()
    };
    let scan = |file| Step {
        file,
        kernel: "main",
        groups: [4, 1, 1],
        arrays: vec!["scene", "reduced", "tag_monoids"],
        ..Step::default()
    };
    let memory = || {
        vec![
            ("config", config.clone()),
            ("scene", bytes(&scene)),
            ("reduced", vec![0; 4 * 20]),
            ("tag_monoids", vec![0; 1024 * 20]),
        ]
    };
    let small = Case {
        name: "vello::pathtag_scan_small",
        steps: vec![reduce(), scan("vello_shaders-0.11.0/shader.pathtag_scan_small.wgsl")],
        memory: memory(),
        expected: vec![("reduced", exactly(&sums)), ("tag_monoids", exactly(&scans))],
    };
    // The scan for large scenes reads the sums of all before each workgroup.
    let mut large_memory = memory();
    large_memory[2].1 = bytes(&before(&sums));
    let large = Case {
        name: "vello::pathtag_scan",
        steps: vec![scan("vello_shaders-0.11.0/shader.pathtag_scan.wgsl")],
        memory: large_memory,
        expected: vec![("tag_monoids", exactly(&scans))],
    };
    // Of 1024 sums again.
    let second = Case {
        name: "vello::pathtag_reduce2",
        steps: vec![Step {
            file: "vello_shaders-0.11.0/shader.pathtag_reduce2.wgsl",
            kernel: "main",
            groups: [4, 1, 1],
            arrays: vec!["reduced_in", "reduced"],
            ..Step::default()
        }],
        memory: vec![("reduced_in", bytes(&tags)), ("reduced", vec![0; 4 * 20])],
        expected: vec![("reduced", exactly(&sums))],
    };
    let third = Case {
        name: "vello::pathtag_scan1",
        steps: vec![Step {
            file: "vello_shaders-0.11.0/shader.pathtag_scan1.wgsl",
            kernel: "main",
            groups: [4, 1, 1],
            arrays: vec!["reduced", "reduced2", "tag_monoids"],
            ..Step::default()
        }],
        memory: vec![
            ("reduced", bytes(&tags)),
            ("reduced2", bytes(&sums)),
            ("tag_monoids", vec![0; 1024 * 20]),
        ],
        expected: vec![("tag_monoids", exactly(&scans))],
    };
    vec![small, large, second, third]
}

/// The first boxes are made empty, those behind stay.
fn boxes() -> Case {
    let initial: Vec<[u32; 6]> = words(6 * 300, 5).as_chunks::<6>().0.to_vec();
    let empty = |(index, old): (usize, &[u32; 6])| match index {
        ..277 => [0x7fff_ffff, 0x7fff_ffff, 0x8000_0000, 0x8000_0000, old[4], old[5]],
        _ => *old,
    };
    let expected: Vec<[u32; 6]> = initial.iter().enumerate().map(empty).collect();
    Case {
        name: "vello::bbox_clear",
        steps: vec![Step {
            file: "vello_shaders-0.11.0/shader.bbox_clear.wgsl",
            kernel: "main",
            groups: [2, 1, 1],
            arrays: vec!["path_bboxes"],
            ..Step::default()
        }],
        memory: vec![("config", config(&[(N_PATH, 277)])), ("path_bboxes", bytes(&initial))],
        expected: vec![("path_bboxes", exactly(&expected))],
    }
}

/// Sums along rows of 50 tiles.
fn backdrop() -> Case {
    let initial: Vec<[i32; 2]> =
        words(2 * 50 * 7, 6).as_chunks::<2>().0.iter().map(|x| x.map(|x| x as i32 >> 8)).collect();
    let mut expected = initial.clone();
    for row in expected.chunks_mut(50) {
        (1..50).for_each(|x| row[x][0] += row[x - 1][0]);
    }
    Case {
        name: "vello::backdrop",
        steps: vec![Step {
            file: "vello_shaders-0.11.0/shader.backdrop.wgsl",
            kernel: "main",
            groups: [7, 1, 1],
            arrays: vec!["tiles"],
            ..Step::default()
        }],
        memory: vec![("config", config(&[(0, 50)])), ("tiles", bytes(&initial))],
        expected: vec![("tiles", exactly(&expected))],
    }
}

/// Sums along the rows of 300 rectangles of tiles, some of which are empty.
fn backdrop_dyn() -> Case {
    let mut tiles: Vec<[i32; 2]> = Vec::new();
    let (mut paths, mut rows) = (Vec::new(), Vec::new());
    for word in words(300, 7) {
        let (width, height) = (word % 9, word / 16 % 5);
        paths.push([3, 4, 3 + width, 4 + height, tiles.len() as u32, 0, 0, 0]);
        for _ in 0..height {
            rows.push(tiles.len()..tiles.len() + width as usize);
            tiles.extend((0..width).map(|x| [(word >> x & 15) as i32 - 7, word as i32]));
        }
    }
    let mut expected = tiles.clone();
    for row in rows {
        (row.start + 1..row.end).for_each(|x| expected[x][0] += expected[x - 1][0]);
    }
    let step = |bump| Step {
        file: "vello_shaders-0.11.0/shader.backdrop_dyn.wgsl",
        kernel: "main",
        groups: [2, 1, 1],
        arrays: vec!["paths", "tiles"],
        values: bump,
        ..Step::default()
    };
    Case {
        name: "vello::backdrop_dyn",
        steps: vec![step(Vec::new())],
        memory: vec![
            ("config", config(&[(N_DRAWOBJ, 300)])),
            ("bump", vec![0; 32]),
            ("paths", bytes(&paths)),
            ("tiles", bytes(&tiles)),
        ],
        expected: vec![("tiles", exactly(&expected))],
    }
}

/// Sums of draw objects: the blocks of 256 are divided among 256 workgroups.
fn draws() -> Case {
    let (base, count) = (5, 700);
    let mut scene = words(base + count, 8);
    scene.iter_mut().step_by(3).for_each(|word| *word = 0);
    let mut expected = [[0_u32; 4]; 256];
    for (index, word) in scene[base..].iter().enumerate() {
        let sum = &mut expected[index / 256];
        sum[0] += u32::from(*word != 0);
        sum[1] += word & 1;
        sum[2] += word >> 2 & 7;
        sum[3] += word >> 6 & 15;
    }
    Case {
        name: "vello::draw_reduce",
        steps: vec![Step {
            file: "vello_shaders-0.11.0/shader.draw_reduce.wgsl",
            kernel: "main",
            groups: [256, 1, 1],
            arrays: vec!["scene", "reduced"],
            ..Step::default()
        }],
        memory: vec![
            ("config", config(&[(N_DRAWOBJ, count as u32), (DRAWTAG_BASE, base as u32)])),
            ("scene", bytes(&scene)),
            ("reduced", vec![0xff; 256 * 16]),
        ],
        expected: vec![("reduced", exactly(&expected))],
    }
}
