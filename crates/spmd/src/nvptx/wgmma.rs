//! PTX of a product by `wgmma`: a loop over the depth in which the threads copy tiles of both factors to shared memory by `cp.async`, stages
//! ahead, and each warpgroup multiplies its rows (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//!
//! A stage is 64 elements deep. A tile is rows of 128 bytes: of a factor whose inner dimension is the depth, one for each of its rows or
//! columns; otherwise, for each 64 of those, one for each element of the depth. The 16-byte chunks of a row are swizzled by its number, and
//! eight rows are one unit of the swizzle. Where a factor ends, `cp.async` fills chunks with zeros.
//!
//! Stage s + 1 is waited for while the product of stage s runs, and its place is filled again one round later, when each warpgroup has
//! finished it: the stages that are being fetched are two fewer than those in memory.

use std::fmt::Write as _;

/// Elements of the depth in a stage: 128 bytes, the width of the swizzle.
const DEPTH: u32 = 64;
/// Bytes of a row of a tile.
const ROW: u32 = 128;
/// Shared memory of a threadgroup beside which its own 32 KiB have room (CUDA C++ Programming Guide, compute capability 9.0).
pub(super) const MOST: u32 = 192 << 10;
/// Shared memory of a multiprocessor for its threadgroups.
const ALL: u32 = 227 << 10;
/// Alignment of a tile: the unit of the swizzle.
pub(super) const ALIGN: u32 = 1024;

/// A product of a tile of `rows` by `columns`. In the intrinsics it is their `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    bfloat: bool,
    left_transposed: bool,
    right_transposed: bool,
    /// Whether it is added to the elements.
    pub accumulates: bool,
    rows: u32,
    columns: u32,
    warpgroups: u32,
}

impl Product {
    /// The product of this kind, if `wgmma` has it: whole warpgroups of 64 rows each, up to 256 columns, 128 elements a thread.
    pub fn of(kind: u32) -> Option<Self> {
        let bit = |at: u32| kind >> at & 1 != 0;
        let [rows, columns, simdgroups] = [8, 16, 24].map(|at| kind >> at & 0xff);
        let this = Self {
            bfloat: bit(1),
            left_transposed: bit(2),
            right_transposed: bit(3),
            accumulates: bit(4),
            rows: rows * 8,
            columns: columns * 8,
            warpgroups: simdgroups / 4,
        };
        let is_whole = matches!(kind & 3, 1 | 2)
            && matches!(simdgroups, 4 | 8)
            && this.rows.is_multiple_of(64 * this.warpgroups)
            && this.rows > 0
            && matches!(this.columns, 64 | 128 | 192 | 256);
        (is_whole && this.elements() <= 128 && this.shared_bytes() <= MOST + ALIGN).then_some(this)
    }

    pub fn threads(self) -> u32 {
        128 * self.warpgroups
    }

    /// Elements of the result in a thread.
    pub fn elements(self) -> u32 {
        self.rows * self.columns / self.threads()
    }

    fn stage_bytes(self) -> u32 {
        (self.rows + self.columns) * ROW
    }

    /// Four stages, or three if another threadgroup then has room on the same multiprocessor.
    fn stages(self) -> u32 {
        let pairs = |stages: u32| 2 * (stages * self.stage_bytes() + ALIGN) <= ALL;
        if pairs(3) && !pairs(4) { 3 } else { 4 }
    }

    fn bytes(self) -> u32 {
        self.stage_bytes() * self.stages()
    }

    /// Bytes of shared memory, with what the alignment takes.
    pub fn shared_bytes(self) -> u32 {
        self.bytes() + ALIGN
    }

    /// The text of an inline assembly. Operands: the elements; then left, its row in bytes, right, its row in bytes (i64); rows, columns,
    /// depth, the address in shared memory, and the thread's index (i32).
    pub fn text(self) -> String {
        let mut text = Text { product: self, text: String::from("{\n") };
        text.prologue();
        for _ in 0..self.stages() - 2 {
            text.fetch();
        }
        text.rounds();
        text.text + "}"
    }

    fn sides(self) -> [Side; 2] {
        let operand = |at: u32| format!("${}", self.elements() + at);
        [
            Side {
                name: "a",
                pointer: operand(0),
                row: operand(1),
                size: self.rows,
                limit: operand(4),
                is_deep: !self.left_transposed,
                at: 0,
            },
            Side {
                name: "b",
                pointer: operand(2),
                row: operand(3),
                size: self.columns,
                limit: operand(5),
                is_deep: self.right_transposed,
                at: self.rows * ROW,
            },
        ]
    }
}

/// A factor.
struct Side {
    name: &'static str,
    pointer: String,
    row: String,
    /// Rows of the left factor's tile, columns of the right one's.
    size: u32,
    /// The operand with how many of them there are.
    limit: String,
    /// Whether the depth is the dimension whose elements are neighbors.
    is_deep: bool,
    /// Place of its tile in a stage.
    at: u32,
}

impl Side {
    /// The constant part of a descriptor ("Matrix Descriptor Format"): swizzle of 128 bytes; 1024 bytes between units of eight rows; bytes
    /// between blocks of 64 elements, where the depth is the outer dimension.
    fn descriptor(&self) -> u64 {
        let between = if self.is_deep { 1 } else { u64::from(DEPTH * ROW / 16) };
        1 << 62 | (1024 / 16) << 32 | between << 16
    }

    /// What 16 elements of the depth add to a descriptor, in units of 16 bytes.
    fn step(&self) -> u32 {
        if self.is_deep { 2 } else { 16 * ROW / 16 }
    }
}

struct Text {
    product: Product,
    text: String,
}

impl Text {
    fn line(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.text, "{}", line.as_ref());
    }

    fn lines(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// Rows of a tile that the threads copy at once, eight threads each.
    fn pass(&self) -> u32 {
        self.product.threads() / 8
    }

    /// Place of the thread's chunks, first addresses, and limits.
    fn prologue(&mut self) {
        let [shared, thread, depth] = [7, 8, 6].map(|at| format!("${}", self.product.elements() + at));
        self.lines(&[
            ".reg .b32 chunk, row, to0, to, bytes, t, left, done, fill, use, group, low;",
            ".reg .b64 q, da, db, xa, xb;",
            ".reg .pred p;",
        ]);
        self.line(format!("and.b32 chunk, {thread}, 7;"));
        self.line(format!("shr.u32 row, {thread}, 3;"));
        self.line(format!("shr.u32 group, {thread}, 7;"));
        self.lines(&[
            "and.b32 t, row, 7;",
            "xor.b32 t, t, chunk;",
            "shl.b32 t, t, 4;",
            "shl.b32 to0, row, 7;",
        ]);
        self.line("add.u32 to0, to0, t;");
        self.line(format!("add.u32 to0, to0, {shared};"));
        let pass = self.pass();
        for side in self.product.sides() {
            let Side { name, pointer, row, size, limit, .. } = &side;
            self.line(format!(".reg .b64 {name}p, {name}step, {name}next;"));
            self.line("cvt.u64.u32 q, row;");
            self.line(format!("mad.lo.u64 {name}p, q, {row}, {pointer};"));
            self.line("mul.wide.u32 q, chunk, 16;");
            self.line(format!("add.u64 {name}p, {name}p, q;"));
            self.line(format!("mul.lo.u64 {name}step, {row}, {pass};"));
            if side.is_deep {
                self.line(format!("mov.u64 {name}next, {ROW};"));
                for i in 0..size / pass {
                    self.line(format!(".reg .b32 {name}most{i};"));
                    self.line(format!("add.u32 t, row, {};", i * pass));
                    self.line(format!("setp.lt.s32 p, t, {limit};"));
                    self.line(format!("selp.b32 {name}most{i}, 16, 0, p;"));
                }
            } else {
                self.line(format!("mul.lo.u64 {name}next, {row}, {DEPTH};"));
                for block in 0..size / DEPTH {
                    self.line(format!(".reg .b32 {name}most{block};"));
                    self.line("shl.b32 t, chunk, 3;");
                    self.line(format!("add.u32 t, t, {};", block * DEPTH));
                    self.line(format!("sub.s32 t, {limit}, t;"));
                    self.lines(&["shl.b32 t, t, 1;", "max.s32 t, t, 0;"]);
                    self.line(format!("min.s32 {name}most{block}, t, 16;"));
                }
            }
        }
        self.lines(&["mov.u32 done, 0;", "mov.u32 fill, 0;", "mov.u32 use, 0;"]);
        self.line(format!("mov.u32 left, {depth};"));
    }

    /// Copies the next stage, as one group. Beyond the depth it is zeros.
    fn fetch(&mut self) {
        let pass = self.pass();
        self.line("add.u32 to, to0, fill;");
        for side in self.product.sides() {
            let (name, at) = (side.name, side.at);
            let copy = |to: u32, from: u32| {
                format!("cp.async.cg.shared.global [to+{}], [q+{from}], 16, bytes;", at + to * ROW)
            };
            self.line(format!("mov.u64 q, {name}p;"));
            if side.is_deep {
                self.lines(&["shl.b32 t, chunk, 3;", "sub.s32 t, left, t;", "shl.b32 t, t, 1;"]);
                self.lines(&["max.s32 t, t, 0;", "min.s32 t, t, 16;"]);
                for i in 0..side.size / pass {
                    self.line(format!("min.s32 bytes, t, {name}most{i};"));
                    self.line(copy(i * pass, 0));
                    self.line(format!("add.u64 q, q, {name}step;"));
                }
            } else {
                for r in 0..DEPTH / pass {
                    self.line(format!("add.u32 t, row, {};", r * pass));
                    self.line("setp.lt.s32 p, t, left;");
                    for block in 0..side.size / DEPTH {
                        self.line(format!("selp.b32 bytes, {name}most{block}, 0, p;"));
                        self.line(copy(block * DEPTH + r * pass, block * ROW));
                    }
                    self.line(format!("add.u64 q, q, {name}step;"));
                }
            }
            self.line(format!("add.u64 {name}p, {name}p, {name}next;"));
        }
        self.line("cp.async.commit_group;");
        self.line(format!("sub.s32 left, left, {DEPTH};"));
        self.advance("fill");
    }

    /// The next stage in the ring.
    fn advance(&mut self, stage: &str) {
        self.line(format!("add.u32 {stage}, {stage}, {};", self.product.stage_bytes()));
        self.line(format!("setp.eq.u32 p, {stage}, {};", self.product.bytes()));
        self.line(format!("selp.b32 {stage}, 0, {stage}, p;"));
    }

    fn rounds(&mut self) {
        let product = self.product;
        let [shared, depth] = [7, 6].map(|at| format!("${}", product.elements() + at));
        let sides = product.sides();
        self.line("wgmma.fence.sync.aligned;");
        self.line("ROUND:");
        self.line(format!("cp.async.wait_group {};", product.stages() - 3));
        // What this thread has copied becomes visible to the asynchronous proxy, then what all have.
        self.lines(&["fence.proxy.async.shared::cta;", "bar.sync 0;", "wgmma.fence.sync.aligned;"]);
        self.line(format!("add.u32 low, {shared}, use;"));
        self.lines(&["shl.b32 t, group, 13;", "add.u32 t, t, low;"]);
        for side in &sides {
            let name = side.name;
            if name == "b" {
                self.line(format!("add.u32 t, low, {};", side.at));
            }
            self.lines(&["shr.u32 t, t, 4;", "and.b32 t, t, 0x3fff;"]);
            self.line(format!("cvt.u64.u32 d{name}, t;"));
            self.line(format!("or.b64 d{name}, d{name}, {};", side.descriptor()));
        }
        let (atoms, each) = (product.rows / (64 * product.warpgroups), product.columns / 2);
        let ty = if product.bfloat { "bf16" } else { "f16" };
        for k in 0..DEPTH / 16 {
            for atom in 0..atoms {
                let sums: Vec<String> = (0..each).map(|i| format!("${}", atom * each + i)).collect();
                let rows = atom * product.warpgroups * 64 * ROW / 16;
                self.line(format!("add.u64 xa, da, {};", k * sides[0].step() + rows));
                self.line(format!("add.u64 xb, db, {};", k * sides[1].step()));
                self.line(format!(
                    "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{ty}.{ty} {{{}}}, xa, xb, 1, 1, 1, {}, {};",
                    product.columns,
                    sums.join(", "),
                    u32::from(!sides[0].is_deep),
                    u32::from(!sides[1].is_deep)
                ));
            }
        }
        self.line("wgmma.commit_group.sync.aligned;");
        self.fetch();
        self.line("wgmma.wait_group.sync.aligned 1;");
        self.advance("use");
        self.line(format!("add.s32 done, done, {DEPTH};"));
        self.line(format!("setp.lt.s32 p, done, {depth};"));
        self.lines(&[
            "@p bra ROUND;",
            "wgmma.wait_group.sync.aligned 0;",
            "cp.async.wait_group 0;",
            "bar.sync 0;",
        ]);
    }
}
