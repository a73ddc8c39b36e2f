//! Program-scope `constant` data: scalars, arrays, structs, tables, namespaces.

use super::sheet::{Sheet, sheets};

sheets!("program_scope": constants, tables);

const DATA: &str = "
constant float SCALE = 2.5;
constant int COUNT = 3 * 4;
constant constexpr uint MASK = (1u << 5) - 1u;
constexpr constant half TINY = 0.5h;
constant float3 AXIS = float3(1, 2, 3);
constant float4 SHORT = {7};
constant float2x2 TURN = float2x2(float2(0, 1), float2(-1, 0));
struct Item { int key; float2 at; uchar tags[3]; };
constant Item ITEM = {5, {1.5f, 2.5f}, {1, 2, 3}};
constant Item ITEMS[] = {{1, {1, 2}, {1}}, {2, {3, 4}, {2, 3}}, {3, {5, 6}, {4, 5, 6}}};
namespace inner { namespace deep { constant long BIG = 1l << 40; } constant int LEVEL = 9; }
static constant uchar BYTES[256] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255};
constant array<float, 4> WEIGHTS = {{0.125f, 0.25f, 0.5f, 1.0f}};
constant int GRID[2][3] = {{1, 2, 3}, {4, 5, 6}};
constant float PRIMES[8] = {2, 3, 5, 7, 11, 13, 17, 19};
struct Limits { static constant constexpr int low = -3; static constexpr constant float high = 3.5f; };
METAL_FUNC float sum(constant float* values, uint n) { float s = 0; for (uint k = 0; k < n; ++k) s += values[k]; return s; }
constexpr int square(int v) { return v * v; }
constant int SQUARES[] = {square(1), square(2), square(3)};
";

fn constants() -> Sheet {
    Sheet::new("constants")
        .declare(DATA)
        .line("float(SCALE)", |_| 2.5_f32)
        .line("COUNT + 0", |_| 12_i32)
        .line("MASK | 0u", |_| 31_u32)
        .line("float(TINY)", |_| 0.5_f32)
        .line("AXIS * SCALE", |_| [2.5_f32, 5.0, 7.5])
        .line("SHORT + 0", |_| [7.0_f32, 0.0, 0.0, 0.0])
        .line("TURN * float2(3, 4)", |_| [-4.0_f32, 3.0])
        .line("ITEM.at.y + ITEM.key + ITEM.tags[2]", |_| 10.5_f32)
        .line("inner::deep::BIG + inner::LEVEL", |_| (1_i64 << 40) + 9)
        .line("Limits::low * Limits::high", |_| -10.5_f32)
        .line("SQUARES[2] - SQUARES[0]", |_| 8_i32)
        .line("sizeof(ITEMS) / sizeof(ITEMS[0])", |_| 3_u64)
}

fn tables() -> Sheet {
    let n: Vec<u32> = (0..24).collect();
    const PRIMES: [f32; 8] = [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0];
    let bytes = |i: usize| [0_u8, 1, 2, 4, 8, 16, 32, 64, 128, 255].get(i).copied().unwrap_or(0);
    Sheet::new("tables")
        .declare(DATA)
        .column("n", &n)
        .line("PRIMES[n % 8u] + 0", |i| PRIMES[i % 8])
        .line("BYTES[n] + 0", move |i| i32::from(bytes(i)))
        .line("GRID[n & 1u][n % 3u] * 1", |i| [[1, 2, 3], [4, 5, 6]][i & 1][i % 3])
        .line("WEIGHTS[n & 3u] + 0", |i| [0.125_f32, 0.25, 0.5, 1.0][i & 3])
        .line("ITEMS[n % 3u].at.x + ITEMS[n % 3u].tags[1]", |i| [1.0_f32, 3.0 + 3.0, 5.0 + 5.0][i % 3])
        .line("sum(PRIMES, n % 9u)", |i| PRIMES[..i % 9].iter().fold(0.0, |a, b| a + b))
        .line("sum(PRIMES + 2, n & 3u)", |i| PRIMES[2..2 + (i & 3)].iter().fold(0.0, |a, b| a + b))
        .block("a pointer into a table", "constant Item* p = ITEMS; p += n % 3u;", "p->key + 0", |i| {
            (i % 3) as i32 + 1
        })
        .block("a local table", "const int t[4] = {9, 8, 7, 6};", "t[n & 3u] + 0", |i| 9 - (i & 3) as i32)
        .block("a copy that changes", "Item t = ITEMS[1]; t.key += int(n);", "t.key + ITEMS[1].key", |i| {
            i as i32 + 4
        })
}
