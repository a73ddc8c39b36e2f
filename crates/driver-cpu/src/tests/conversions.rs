//! Conversions of `half` and `bfloat` on processors without instructions for them.

use elinvar_msl::Toolchain;
use elinvar_native::{Generator, Target};
use half::{bf16, f16};

use crate::loader::Launch;
use crate::testing;

/// Runs `body`, which reads `%in` and stores to `%out`, for every index below `count`, compiled for a processor without conversion
/// instructions.
#[allow(unsafe_code)] // runs compiled code
fn run<I, O>(input: &[I], output: &mut [O], body: &str) {
    assert_eq!(input.len(), output.len());
    let ir = format!(
        "define i32 @elinvar_threadgroups(ptr %launch, ptr %scratch, i64 %begin, i64 %end) {{
        entry:
          %args = load ptr, ptr %launch
          %ins = load ptr, ptr %args
          %outs.at = getelementptr ptr, ptr %args, i64 1
          %outs = load ptr, ptr %outs.at
          br label %loop
        loop:
          %i = phi i64 [ %begin, %entry ], [ %i.next, %loop ]
          {body}
          %i.next = add i64 %i, 1
          %done = icmp eq i64 %i.next, %end
          br i1 %done, label %exit, label %loop
        exit:
          ret i32 0
        }}"
    );
    let clang = Toolchain::find().unwrap();
    let generator = Generator::new(clang.path(), Target::new(Some("x86-64"), None));
    let code = testing::load(&generator, &ir).unwrap();
    let args = [input.as_ptr().cast(), output.as_mut_ptr().cast()];
    let launch = Launch { args: args.as_ptr(), threads: [1; 3], groups: [1; 3], ..Launch::default() };
    // SAFETY: the function reads and writes one element per index below the slices' length.
    let status = unsafe { code.run(&launch, std::ptr::null_mut(), 0..input.len() as u64) };
    assert_eq!(status, 0);
}

fn floats() -> Vec<f32> {
    let spread = (0..1 << 20).map(|i: u32| f32::from_bits(i.wrapping_mul(4099)));
    let near_halves = (0..=u16::MAX).flat_map(|bits| {
        let bits = f16::from_bits(bits).to_f32().to_bits();
        [-1, 0, 1, 0xfff, 0x1000, 0x1001].map(|d: i32| f32::from_bits(bits.wrapping_add_signed(d)))
    });
    spread.chain(near_halves).collect()
}

#[test]
fn float_to_half_and_bfloat_round_as_the_reference_does() {
    let input = floats();
    let mut halves = vec![0_u16; input.len()];
    let narrow = |kind| {
        format!(
            "%at = getelementptr float, ptr %ins, i64 %i
             %x = load float, ptr %at
             %y = fptrunc float %x to {kind}
             %to = getelementptr i16, ptr %outs, i64 %i
             store {kind} %y, ptr %to"
        )
    };
    run(&input, &mut halves, &narrow("half"));
    for (x, bits) in input.iter().zip(&halves) {
        let (got, want) = (f16::from_bits(*bits), f16::from_f32(*x));
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x}: {got} {want}");
    }
    run(&input, &mut halves, &narrow("bfloat"));
    for (x, bits) in input.iter().zip(&halves) {
        let (got, want) = (bf16::from_bits(*bits), bf16::from_f32(*x));
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x}: {got} {want}");
    }
}

#[test]
fn every_half_widens_exactly() {
    let input: Vec<u16> = (0..=u16::MAX).collect();
    let mut output = vec![0_f32; input.len()];
    let body = "%at = getelementptr half, ptr %ins, i64 %i
                %x = load half, ptr %at
                %y = fpext half %x to float
                %to = getelementptr float, ptr %outs, i64 %i
                store float %y, ptr %to";
    run(&input, &mut output, body);
    for (bits, got) in input.iter().zip(&output) {
        let want = f16::from_bits(*bits).to_f32();
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}: {got} {want}");
    }
}
