// Algorithms of many kinds in WGSL: each kernel takes words, gives words, and knows how many there are.
@group(0) @binding(0) var<storage, read> in: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> n: u32;

fn byte(at: u32) -> u32 { return (in[at / 4u] >> (8u * (at % 4u))) & 0xffu; }
fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }

@compute @workgroup_size(64)
fn spmv(@builtin(global_invocation_id) id: vec3u) {
    let row = id.x;
    if row >= n { return; }
    let count = in[n];
    let columns = n + 1;
    let values = columns + count;
    var sum: u32;
    for (var k = in[row]; k < in[row + 1]; k++) {
        sum += in[values + k] * in[values + count + in[columns + k]];
    }
    out[row] = sum;
}

const SLOTS = 512;
const EMPTY = ~0u;
struct Slot { key: atomic<u32>, count: atomic<u32> }
var<workgroup> slots: array<Slot, SLOTS>;
fn slot_of(key: u32) -> u32 { return (key * 2654435761u) >> (32u - firstTrailingBit(u32(SLOTS))); }
@compute @workgroup_size(64)
fn table(@builtin(local_invocation_index) index: u32) {
    for (var i = index; i < SLOTS; i += 64) { atomicStore(&slots[i].key, EMPTY); }
    workgroupBarrier();
    for (var i = index; i < n; i += 64) {
        let key = in[i];
        var at = slot_of(key);
        loop {
            let old = atomicCompareExchangeWeak(&slots[at].key, EMPTY, key);
            if old.exchanged || old.old_value == key { break; }
            if old.old_value == EMPTY { continue; }
            at = (at + 1) % SLOTS;
        }
        atomicAdd(&slots[at].count, 1u);
    }
    workgroupBarrier();
    for (var i = index; i < n; i += 64) {
        var at = slot_of(in[i]);
        while atomicLoad(&slots[at].key) != in[i] { at = (at + 1) % SLOTS; }
        out[i] = atomicLoad(&slots[at].count);
    }
}

struct Rng { state: vec4u, weyl: u32 }
fn next_random(rng: ptr<function, Rng>) -> u32 {
    var t = (*rng).state.w;
    (*rng).state = (*rng).state.xxyz;
    t ^= t >> 2;
    t ^= t << 1;
    t ^= (*rng).state.y ^ ((*rng).state.y << 4);
    (*rng).state.x = t;
    (*rng).weyl += 362437;
    return t + (*rng).weyl;
}
@compute @workgroup_size(64)
fn rng(@builtin(global_invocation_id) id: vec3u) {
    var own = Rng(vec4u(in[id.x], 2, 3, id.x), id.x);
    var last = 0u;
    for (var k = 0; k < 100; k++) { last ^= next_random(&own); }
    out[id.x] = last;
}

const pattern = array(97u, 98u, 99u, 97u, 98u);
@compute @workgroup_size(64)
fn search(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= n { return; }
    var j = 0u;
    while j < 5 && id.x + j < n {
        if byte(id.x + j) != pattern[j] { break; }
        j++;
    }
    out[id.x] = select(0u, 1u, j == 5);
}

var<workgroup> lines: array<array<u32, 64>, 3>;
@compute @workgroup_size(64)
fn lcs(@builtin(local_invocation_index) row: u32) {
    for (var diagonal = 0u; diagonal < 127; diagonal++) {
        let column = i32(diagonal) - i32(row);
        let now = diagonal % 3;
        if column >= 0 && column < 64 {
            let last = (diagonal + 2) % 3;
            var best = 0u;
            if row > 0 { best = lines[last][row - 1]; }
            if column > 0 { best = max(best, lines[last][row]); }
            if byte(row) == byte(u32(64 + column)) {
                best = 1;
                if row > 0 && column > 0 { best += lines[(diagonal + 1) % 3][row - 1]; }
            }
            lines[now][row] = best;
            if column == 63 { out[row] = best; }
        }
        workgroupBarrier();
    }
}

fn pixel(at: vec2i) -> i32 {
    let inside = clamp(at, vec2i(), vec2i(i32(n), 32) - 1);
    return i32(byte(u32(inside.y) * n + u32(inside.x)));
}
@compute @workgroup_size(64)
fn sobel(@builtin(global_invocation_id) id: vec3u) {
    let at = vec2i(vec2(id.x % n, id.x / n));
    var edge = vec2i();
    for (var d = -1; d <= 1; d++) {
        let weight = 2 - d * d;
        edge += weight * vec2(pixel(at + vec2(1, d)) - pixel(at + vec2(-1, d)), pixel(at + vec2(d, 1)) - pixel(at + vec2(d, -1)));
    }
    let size = abs(edge);
    out[id.x] = u32(min(size.x + size.y, 255));
}

var<workgroup> temp: array<u32, 128>;
@compute @workgroup_size(64)
fn scan(@builtin(local_invocation_id) local: vec3u, @builtin(workgroup_id) group: vec3u) {
    let i = local.x;
    let base = 128 * group.x;
    temp[2 * i] = in[base + 2 * i];
    temp[2 * i + 1] = in[base + 2 * i + 1];
    var offset = 1u;
    for (var d = 64u; d > 0; d >>= 1) {
        workgroupBarrier();
        if i < d { temp[offset * (2 * i + 2) - 1] += temp[offset * (2 * i + 1) - 1]; }
        offset <<= 1;
    }
    if i == 0 { temp[127] = 0; }
    for (var d = 1u; d < 128; d <<= 1) {
        offset >>= 1;
        workgroupBarrier();
        if i < d {
            let a = offset * (2 * i + 1) - 1;
            let b = a + offset;
            let t = temp[a];
            temp[a] = temp[b];
            temp[b] += t;
        }
    }
    workgroupBarrier();
    out[base + 2 * i] = temp[2 * i];
    out[base + 2 * i + 1] = temp[2 * i + 1];
}

var<workgroup> sorted: array<u32, 64>;
@compute @workgroup_size(64)
fn bitonic(@builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) id: vec3u) {
    sorted[i] = in[id.x];
    for (var k = 2u; k <= 64; k *= 2) {
        for (var j = k / 2; j > 0; j /= 2) {
            workgroupBarrier();
            let partner = i ^ j;
            if partner > i && (sorted[i] > sorted[partner]) == ((i & k) == 0) {
                let t = sorted[i];
                sorted[i] = sorted[partner];
                sorted[partner] = t;
            }
        }
    }
    workgroupBarrier();
    out[id.x] = sorted[i];
}

@compute @workgroup_size(64)
fn life(@builtin(global_invocation_id) id: vec3u) {
    var low: u32; var high: u32; var four: u32;
    for (var dy = 0u; dy < 3; dy++) {
        let row = in[(id.x + dy + n - 1) % n];
        let parts = array<u32, 3>(rotate(row, 1), row, rotate(row, 31));
        for (var k = 0; k < 3; k++) {
            if dy == 1 && k == 1 { continue; }
            let carry = low & parts[k];
            low ^= parts[k];
            four |= high & carry;
            high ^= carry;
        }
    }
    out[id.x] = ~four & high & (low | in[id.x]);
}

@compute @workgroup_size(64)
fn crc(@builtin(global_invocation_id) id: vec3u) {
    var crc = ~0u;
    for (var i = 0u; i < 16; i++) {
        crc ^= byte(16 * id.x + i);
        for (var bit = 0; bit < 8; bit++) { crc = (crc >> 1) ^ (0xedb88320u * (crc & 1)); }
    }
    out[id.x] = ~crc;
}

fn quarter(x: ptr<function, array<u32, 16>>, a: u32, b: u32, c: u32, d: u32) {
    x[a] += x[b]; x[d] = rotate(x[d] ^ x[a], 16u); x[c] += x[d]; x[b] = rotate(x[b] ^ x[c], 12u);
    x[a] += x[b]; x[d] = rotate(x[d] ^ x[a], 8u); x[c] += x[d]; x[b] = rotate(x[b] ^ x[c], 7u);
}
@compute @workgroup_size(64)
fn chacha(@builtin(global_invocation_id) id: vec3u) {
    var start = array<u32, 16>(0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, 0, 0, 0, 0, 0, 0, 0, 0, id.x, 0, 0, 0);
    for (var i = 0; i < 8; i++) { start[4 + i] = in[i]; }
    for (var i = 0; i < 3; i++) { start[13 + i] = in[8 + i]; }
    var x = start;
    for (var i = 0; i < 10; i++) {
        for (var k = 0u; k < 4; k++) { quarter(&x, k, 4 + k, 8 + k, 12 + k); }
        for (var k = 0u; k < 4; k++) { quarter(&x, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4); }
    }
    for (var i = 0u; i < 16; i++) { out[16 * id.x + i] = x[i] + start[i]; }
}

var<workgroup> ways: array<array<u32, 8>, 8>;
@compute @workgroup_size(8, 8)
fn floyd(@builtin(local_invocation_id) at: vec3u, @builtin(local_invocation_index) index: u32) {
    ways[at.y][at.x] = in[index];
    for (var k = 0; k < 8; k++) {
        workgroupBarrier();
        let way = ways[at.y][k] + ways[k][at.x];
        let is_way = way >= ways[k][at.x];
        workgroupBarrier();
        if is_way { ways[at.y][at.x] = min(ways[at.y][at.x], way); }
    }
    out[index] = ways[at.y][at.x];
}

fn letter(value: u32) -> u32 {
    switch value {
        case 62: { return 43u; }
        case 63: { return 47u; }
        default: {
            if value < 26 { return value + 65; }
            return select(value - 4, value + 71, value < 52);
        }
    }
}
@compute @workgroup_size(64)
fn base64(@builtin(global_invocation_id) id: vec3u) {
    let word = (byte(3 * id.x) << 16) | (byte(3 * id.x + 1) << 8) | byte(3 * id.x + 2);
    var all = 0u;
    for (var k = 0u; k < 4; k++) { all = insertBits(all, letter(extractBits(word, 18 - 6 * k, 6u)), 8 * k, 8u); }
    out[id.x] = all;
}

@compute @workgroup_size(64)
fn mandelbrot(@builtin(global_invocation_id) id: vec3u) {
    let c = vec2i(i32(id.x % n) * 96 - 8192, i32(id.x / n) * 192 - 3072);
    var z = vec2i();
    var count = 0u;
    loop {
        z = vec2i((z.x * z.x - z.y * z.y) >> 12, (z.x * z.y) >> 11) + c;
        count += 1;
        continuing { break if count > 50 || u32(z.x * z.x) + u32(z.y * z.y) >= (4u << 24); }
    }
    out[id.x] = count;
}
