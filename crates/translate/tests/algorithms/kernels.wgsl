// Algorithms of many kinds in WGSL: each kernel takes words, gives words, and knows how many there are.
@group(0) @binding(0) var<storage, read> in: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> n: u32;
