//! Size, alignment and field offsets of types in memory, according to the tables of the MSL specification.

use elinvar::f16;

use super::sheet::{Sheet, sheets};

sheets!("layout": scalars_and_vectors, matrices, structs, nested_structs, unions_and_enums);

/// Lines `sizeof` and `alignof` of a type.
fn type_of(sheet: Sheet, name: &str, size: u64, align: u64) -> Sheet {
    sheet.line(&format!("ulong2(sizeof({name}), alignof({name}))"), move |_| [size, align])
}

fn scalars_and_vectors() -> Sheet {
    let mut sheet = Sheet::new("scalars_and_vectors");
    let scalars: [(&str, u64); 12] = [
        ("bool", 1),
        ("char", 1),
        ("uchar", 1),
        ("short", 2),
        ("ushort", 2),
        ("half", 2),
        ("bfloat", 2),
        ("int", 4),
        ("uint", 4),
        ("float", 4),
        ("long", 8),
        ("ulong", 8),
    ];
    for (name, size) in scalars {
        sheet = type_of(sheet, name, size, size);
        // Three components take the space of four.
        sheet = type_of(sheet, &format!("{name}2"), 2 * size, 2 * size);
        sheet = type_of(sheet, &format!("{name}3"), 4 * size, 4 * size);
        sheet = type_of(sheet, &format!("{name}4"), 4 * size, 4 * size);
    }
    for (name, size) in
        [("size_t", 8), ("ptrdiff_t", 8), ("int8_t", 1), ("uint16_t", 2), ("int32_t", 4), ("uint64_t", 8)]
    {
        sheet = type_of(sheet, name, size, size);
    }
    for name in ["atomic_int", "atomic_uint", "atomic_float"] {
        sheet = type_of(sheet, name, 4, 4);
    }
    sheet = type_of(sheet, "atomic_bool", 1, 1);
    type_of(type_of(sheet, "atomic_ulong", 8, 8), "device float*", 8, 8)
}

fn matrices() -> Sheet {
    let mut sheet = Sheet::new("matrices");
    for (name, scalar) in [("half", 2), ("float", 4)] {
        for columns in 2..=4 {
            for rows in 2..=4 {
                let column = scalar * if rows == 2 { 2 } else { 4 };
                sheet = type_of(sheet, &format!("{name}{columns}x{rows}"), columns * column, column);
            }
        }
    }
    sheet
}

fn offsets(
    sheet: Sheet,
    name: &'static str,
    members: &[(&'static str, u64)],
    size: u64,
    align: u64,
) -> Sheet {
    let mut sheet = type_of(sheet, name, size, align);
    for (member, offset) in members.iter().copied() {
        sheet = sheet.line(&format!("ulong(offsetof({name}, {member}))"), move |_| offset);
    }
    sheet
}

fn structs() -> Sheet {
    let sheet = Sheet::new("structs").declare(
        "struct Mixed { char a; int b; short c; long d; bool e; };
         struct Vectors { float a; float3 b; float c; half3 d; uchar2 e; };
         struct Packed { uchar a; packed_float3 b; packed_half3 c; packed_uchar2 d; half e; };
         struct Matrices { float a; float3x3 b; half2x2 c; float4x2 d; };
         struct Arrays { bool a[3]; float3 b[2]; packed_float3 c[2]; ushort d[2][3]; };
         struct Pointers { device float* a; uchar b; constant int* c; };
         struct Aligned { char a; alignas(16) char b; };
         struct Bits { uint a : 3; uint b : 7; uint c : 30; };",
    );
    let sheet = offsets(sheet, "Mixed", &[("a", 0), ("b", 4), ("c", 8), ("d", 16), ("e", 24)], 32, 8);
    let sheet = offsets(sheet, "Vectors", &[("a", 0), ("b", 16), ("c", 32), ("d", 40), ("e", 48)], 64, 16);
    let sheet = offsets(sheet, "Packed", &[("a", 0), ("b", 4), ("c", 16), ("d", 22), ("e", 24)], 28, 4);
    let sheet = offsets(sheet, "Matrices", &[("a", 0), ("b", 16), ("c", 64), ("d", 72)], 112, 16);
    let sheet = offsets(sheet, "Arrays", &[("a", 0), ("b", 16), ("c", 48), ("d", 72)], 96, 16);
    let sheet = offsets(sheet, "Pointers", &[("a", 0), ("b", 8), ("c", 16)], 24, 8);
    type_of(offsets(sheet, "Aligned", &[("a", 0), ("b", 16)], 32, 16), "Bits", 8, 4)
}

/// Values at the offsets that result from the layout rules.
fn nested_structs() -> Sheet {
    let words: Vec<u32> = (0..64).map(|i| i * 0x0101_0101).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let float = move |at: usize| f32::from_bits(words[at / 4]);
    let (f1, f2) = (float.clone(), float);
    let (b1, b2) = (bytes.clone(), bytes);
    let sheet = Sheet::new("nested_structs").declare(
        "struct Inner { half3 a; uchar b; };
         struct Middle { char a; Inner b[2]; packed_float3 c; };
         struct Outer { short a; Middle b; float3 c; bool d; Inner e; };
         struct Empty {};
         struct Derived : Inner { float c; };",
    );
    let sheet = offsets(sheet, "Inner", &[("a", 0), ("b", 8)], 16, 8);
    let sheet = offsets(sheet, "Middle", &[("a", 0), ("b", 8), ("c", 40)], 56, 8);
    let sheet = offsets(sheet, "Outer", &[("a", 0), ("b", 8), ("c", 64), ("d", 80), ("e", 88)], 112, 16);
    let fill = "alignas(16) uint words[64]; for (uint k = 0; k < 64u; ++k) words[k] = k * 0x01010101u; \
                thread Outer& t = *(thread Outer*)words;";
    type_of(type_of(sheet, "Empty", 1, 1), "Derived", 16, 8)
        .block("packed float inside", fill, "t.b.c[1]", move |_| f1(8 + 40 + 4))
        .block("float3 inside", fill, "t.c.z", move |_| f2(72))
        .block("byte of the second inner", fill, "t.b.b[1].b", move |_| b1[8 + 8 + 16 + 8])
        .block("byte of the last inner", fill, "t.e.b", move |_| b2[88 + 8])
}

fn unions_and_enums() -> Sheet {
    let sheet = Sheet::new("unions_and_enums").declare(
        "union Number { uint bits; float value; uchar bytes[4]; half2 halves; };
         union Large { char a; float4 b; };
         enum class Small : uchar { one = 1, big = 200 };
         enum Plain { first, second = 7, third };
         struct Holder { Small a; Plain b; Number c; };
         struct Pair { half a; float b; };
         Pair larger(Pair x, Pair y) { Pair c = x.a > y.a ? x : y; Pair r; r.b = c.b; r.a = c.a; return r; }",
    );
    let sheet = type_of(type_of(type_of(sheet, "Number", 4, 4), "Large", 16, 16), "Small", 1, 1);
    offsets(type_of(sheet, "Plain", 4, 4), "Holder", &[("a", 0), ("b", 4), ("c", 8)], 12, 4)
        .block("through a union", "Number n; n.value = 1.0f;", "n.bits", |_| 0x3f80_0000_u32)
        .block("bytes of a union", "Number n; n.bits = 0x04030201u; n.bytes[1] = 9;", "n.bits", |_| {
            0x0403_0901_u32
        })
        .block("vector in a union", "Number n; n.halves = half2(1, 2);", "n.bits", |_| 0x4000_3c00_u32)
        .column("h", &[f16::from_f32(0.5), f16::from_f32(3.0)])
        .block("half and float by value", "Pair p = larger(Pair{h, 1.5f}, Pair{1.0h, 2.5f});", "p.b", |row| {
            [2.5_f32, 1.5][row]
        })
        .line("uchar(Small::big)", |_| 200_u8)
        .line("int(third)", |_| 8_i32)
        .block("compared", "Small s = Small::one;", "s == Small::one && s != Small::big", |_| true)
}
