//! Control flow that Metal does not have, against an OpenCL driver: `goto` out of loops and blocks, backward, and across others.

use elinvar::Source;

use crate::support::pocl::Program;
use crate::support::{Argument, Launch, Translated, expect_portable};

const THREADS: usize = 256;

const JUMPS: &str = r#"
static int leave(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            switch ((i * j + n) % 7) {
            case 0: continue;
            case 3: if (i > 5) goto found; else break;
            case 5: sum += 2; // falls through
            default: sum += j;
            }
            if (sum > 500) goto end;
        }
    }
    sum += 1000;
    goto end;
found:
    sum = -sum;
    int extra = sum * 2;
    if (n & 1) goto end;
    sum += extra;
end:
    return sum;
}
static int again(int n) {
    int steps = 0;
start:
    if (n <= 1) goto done;
    if (n & 1) n = 3 * n + 1; else n /= 2;
    while (n % 8 == 0) { n /= 8; if (++steps > 20) goto done; if (n % 5 == 1) goto start; }
    steps++;
    goto start;
done:
    return steps;
}
#define CHECK(x) do { if (!(x)) { code = __LINE__; goto failed; } } while (0)
static int macros(int n) {
    int code = 0;
    if (n > 50) CHECK(n % 3); else CHECK(n % 4);
    CHECK(n % 5);
    for (int k = 0; k < 10; k++) { CHECK(k < n); code += k; if (code > 20) goto next; continue; next: code -= 3; }
    return code;
failed:
    return -code;
}
static int machine(int state, int n) {
    int out = 0;
    switch (state) {
    case 0:
        for (;;) {
            do { out++; state = 1; if (n-- < 3) goto common; case 1:; } while (0);
            while (n % 3) { do { state = 2; n--; if (n % 2) goto common; case 2: out += 3; } while (0); }
        }
    }
common:
    return out * 100 + state * 10 + n;
}
__kernel void k(__global int *out) {
    int i = get_global_id(0);
    out[i * 4] = leave(i);
    out[i * 4 + 1] = again(i);
    out[i * 4 + 2] = macros(i);
    out[i * 4 + 3] = machine(i % 3, i + 40);
}
"#;

fn jumps() {
    let launch = Launch {
        kernel: "k".into(),
        arguments: vec![Argument::Buffer(vec![0; THREADS * 16])],
        global: [THREADS, 1, 1],
        local: [32, 1, 1],
    };
    let theirs = Program::new(JUMPS, "").unwrap().launch(&launch).unwrap();
    let ours = Translated::new(&Source::named("test.cl", JUMPS)).unwrap();
    expect_portable(&ours.translation);
    let ours = ours.launch(&launch).unwrap();
    let words =
        |bytes: &[u8]| -> Vec<i32> { bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect() };
    let (ours, theirs) = (words(&ours[0]), words(&theirs[0]));
    for (thread, (own, other)) in ours.chunks(4).zip(theirs.chunks(4)).enumerate() {
        assert_eq!(own, other, "thread {thread}");
    }
    let distinct: std::collections::BTreeSet<&[i32]> = theirs.chunks(4).collect();
    assert!(distinct.len() > 200, "{} results", distinct.len());
}

pub fn cases(driver: &Option<String>) -> Vec<crate::Case> {
    vec![crate::Case {
        name: "control::jumps".into(),
        absence: driver.clone(),
        run: Box::new(jumps),
        required: true,
    }]
}
