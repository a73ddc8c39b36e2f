//! Whole compilations: the text of the result as a snapshot, checked by the verifier, and refusals.

use elinvar_ir::{Module, verify};
use elinvar_spmd::bounds::{Given, RootKind, reach};
use elinvar_spmd::{Compiled, Error, Facts, Options, SizeBound, compile, facts};

const DECLARATIONS: &str = "
    declare i32 @__elinvar_thread_position_in_threadgroup(i32)
    declare i32 @__elinvar_threads_per_grid(i32)
    declare void @__elinvar_threadgroup_barrier(i32)
    declare void @__elinvar_simdgroup_barrier(i32)
    declare float @__elinvar_simd_sum_f32(float)
    declare float @mystery(float)
";

/// Arguments of at least so many bytes.
fn given(bytes: &[u64]) -> Vec<Given> {
    bytes.iter().map(|bytes| Given { bytes: *bytes, align: 16 }).collect()
}

fn parse(text: &str) -> Module {
    Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn compiled(text: &str, group: [u32; 3], threadgroup_args: &[bool]) -> Result<Compiled, Error> {
    vectorized(text, group, threadgroup_args, 1)
}

fn vectorized(text: &str, group: [u32; 3], threadgroup_args: &[bool], lanes: u32) -> Result<Compiled, Error> {
    let module = parse(text);
    verify(&module).unwrap_or_else(|errors| panic!("the input is wrong: {errors:?}"));
    let options = Options {
        group: group.into(),
        lanes,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: threadgroup_args.to_vec(),
        checks: None,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    let compiled = compile(&module, &options)?;
    verify(&parse(&compiled.ir)).unwrap_or_else(|errors| panic!("{errors:?}\n{}", compiled.ir));
    Ok(compiled)
}

/// Compile an entry with this body, with one pointer argument `%data`, for groups of 64.
fn body(text: &str) -> Result<Compiled, Error> {
    compiled(
        &format!("define void @__elinvar_entry(ptr %data) {{\n{text}\n}}\n{DECLARATIONS}"),
        [64, 1, 1],
        &[false],
    )
}

#[test]
fn one_region() {
    let result = compiled(include_str!("data/add.ll"), [32, 4, 1], &[false, false]).expect("compiles");
    assert_eq!(result.scratch_bytes, 0);
    insta::assert_snapshot!(result.ir);
}

#[test]
fn one_region_in_vectors() {
    let text = include_str!("data/add.ll");
    let result = vectorized(text, [32, 4, 1], &[false, false], 8).expect("compiles");
    insta::assert_snapshot!(result.ir);
}

#[test]
fn two_regions_in_vectors() {
    let text = include_str!("data/exchange.ll");
    let result = vectorized(text, [64, 1, 1], &[false; 3], 4).expect("compiles");
    insta::assert_snapshot!(result.ir);
}

#[test]
fn two_regions() {
    let result = compiled(include_str!("data/exchange.ll"), [64, 1, 1], &[false; 3]).expect("compiles");
    // mine (float) for 64 threads, and a number each for who has returned; wide (i64) is computed anew.
    assert_eq!(result.scratch_bytes, 64 * 4 + 320);
    insta::assert_snapshot!(result.ir);
}

#[test]
fn barriers_in_a_loop() {
    let result = compiled(include_str!("data/loop.ll"), [1, 8, 1], &[false, false, true]).expect("compiles");
    insta::assert_snapshot!(result.ir);
}

#[test]
fn facts_are_counted() {
    let count = |text| facts(&parse(text)).expect("has an entry");
    assert_eq!(
        count(include_str!("data/exchange.ll")),
        Facts { threadgroup_memory: 256, barriers: 1, may_write: 0b10, ..Facts::default() }
    );
    let text = format!(
        "define void @__elinvar_entry(ptr %p) {{
            %old = atomicrmw add ptr %p, i32 1 monotonic
            %now = load atomic i32, ptr %p monotonic, align 4
            %sum = call float @__elinvar_simd_sum_f32(float 1.0)
            ret void
        }}{DECLARATIONS}"
    );
    assert_eq!(count(&text), Facts { atomics: 2, simdgroup: true, may_write: 1, ..Facts::default() });
}

#[test]
fn only_what_could_leave_its_memory_is_checked() {
    let module = parse(include_str!("data/exchange.ll"));
    // The third argument is known to have the four bytes that are read of it.
    let checks = Some(given(&[0, 0, 4]));
    let options = Options {
        group: [64, 1, 1].into(),
        lanes: 1,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false; 3],
        checks,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    let compiled = compile(&module, &options).expect("compiles");
    verify(&parse(&compiled.ir)).unwrap_or_else(|errors| panic!("{errors:?}\n{}", compiled.ir));
    let checks = compiled.checks.expect("was asked for");
    let writes: Vec<bool> = checks.sites.iter().map(|site| site.writes).collect();
    // in[local], tile[local] =, tile[local ^ 1], out[local] =
    assert_eq!(writes, [false, true, false, true]);
    let kinds: Vec<&RootKind> = checks.roots.iter().map(|root| &root.kind).collect();
    let tile = RootKind::Threadgroup("tile".into());
    let [a, b, c] = [0, 1, 2].map(RootKind::Argument);
    assert_eq!(kinds, [&a, &b, &c, &tile, &RootKind::Null]);
    assert_eq!(checks.roots[3].bytes, 256);
}

#[test]
fn what_a_kernel_could_leave_is_known_by_its_kind() {
    let module = parse(include_str!("data/exchange.ll"));
    let leaves = |checked: &dyn Fn(&RootKind) -> bool| reach(&module, &given(&[0, 0, 4]), checked).unwrap();
    let of_arguments = leaves(&|kind| matches!(kind, RootKind::Argument(_))).expect("the tile");
    assert_eq!(of_arguments.root.kind, RootKind::Threadgroup("tile".into()));
    assert_eq!(leaves(&|_| true), None);
    assert_eq!(leaves(&|kind| *kind != RootKind::Argument(2)), None, "that one is read within its bytes");
    // A pointer that is one of several counts as each of them.
    let text = format!(
        "define void @__elinvar_entry(ptr %a, ptr %b, i1 %which, i64 %i) {{
            %mine = alloca [4 x i32]
            %one = select i1 %which, ptr %a, ptr %mine
            %other = select i1 %which, ptr %a, ptr %b
            %p = getelementptr i32, ptr %other, i64 %i
            store i32 1, ptr %p
            %q = getelementptr i32, ptr %one, i64 %i
            store i32 1, ptr %q
            ret void
        }}{DECLARATIONS}"
    );
    let module = parse(&text);
    let found = reach(&module, &[], |kind| *kind != RootKind::Private).unwrap().expect("the array");
    assert_eq!((found.root.kind, found.root.bytes), (RootKind::Private, 16));
    let found = reach(&module, &[], |kind| *kind != RootKind::Argument(1)).unwrap().expect("b");
    assert_eq!(found.root.kind, RootKind::Argument(1));
}

#[test]
fn a_pointer_from_memory_cannot_be_checked() {
    let text = format!(
        "define void @__elinvar_entry(ptr %table) {{
            %data = load ptr, ptr %table
            store i32 1, ptr %data
            ret void
        }}{DECLARATIONS}"
    );
    let options = Options {
        group: [1; 3].into(),
        lanes: 1,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false],
        checks: Some(given(&[8])),
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    match compile(&parse(&text), &options) {
        Err(Error::Unsupported { what, .. }) => assert!(what.contains("pointer"), "{what}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A simdgroup arrives if any of its lanes does, and counts as arrived when it has returned.
#[test]
fn a_barrier_that_some_threads_miss_compiles() {
    let branch = "
        %local = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
        %n = call i32 @__elinvar_threads_per_grid(i32 0)
        %first = icmp ult i32 %local, LIMIT
        br i1 %first, label %wait, label %join
      wait:
        call void @__elinvar_threadgroup_barrier(i32 2)
        br label %join
      join:
        store i32 1, ptr %data
        ret void";
    for limit in ["16", "32", "64", "%n"] {
        let result = body(&branch.replace("LIMIT", limit));
        assert!(result.is_ok(), "{limit}: {result:?}");
    }
}

#[test]
fn different_barriers_of_two_simdgroups_are_refused() {
    let sides = |decides: &str| {
        body(&format!(
            "%local = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
             {decides}
             %odd = icmp eq i32 %bit, 1
             br i1 %odd, label %a, label %b
           a:
             call void @__elinvar_threadgroup_barrier(i32 2)
             ret void
           b:
             call void @__elinvar_threadgroup_barrier(i32 2)
             ret void"
        ))
    };
    let result = sides("%bit = lshr i32 %local, 5");
    assert!(matches!(result, Err(Error::DivergentBarrier { .. })), "{result:?}");
    // Each simdgroup has lanes on both sides, so all meet at one barrier, then at the other.
    let result = sides("%bit = and i32 %local, 1");
    assert!(result.is_ok(), "{result:?}");
}

#[track_caller]
fn refused(text: &str, words: &str) {
    match body(text) {
        Err(Error::Unsupported { what, .. }) => assert!(what.contains(words), "{what}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn what_the_compiler_cannot_do_is_refused_by_name() {
    refused("%s = call float @mystery(float 1.0)\n ret void", "`mystery`");
    refused("%f = load ptr, ptr %data\n call void %f()\n ret void", "function pointer");
    refused("%n = load i32, ptr %data\n %a = alloca i32, i32 %n\n ret void", "variable length");
}

#[test]
fn a_function_that_needs_the_group_must_be_inlined() {
    let text = format!(
        "define internal void @meet() {{
            call void @__elinvar_threadgroup_barrier(i32 2)
            ret void
        }}
        define void @__elinvar_entry(ptr %data) {{
            call void @meet()
            ret void
        }}{DECLARATIONS}"
    );
    match compiled(&text, [64, 1, 1], &[false]) {
        Err(Error::Unsupported { what, .. }) => {
            assert!(what.contains("barrier in the function `meet`"), "{what}")
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn the_signature_must_fit_the_entry() {
    let result = compiled(include_str!("data/add.ll"), [32, 1, 1], &[false]);
    assert!(matches!(result, Err(Error::Malformed(_))), "{result:?}");
    let lanes = Options {
        group: [1; 3].into(),
        lanes: 6,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false; 2],
        checks: None,
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    let result = compile(&parse(include_str!("data/add.ll")), &lanes);
    assert!(matches!(result, Err(Error::Malformed(_))), "{result:?}");
}

/// A function that is not inlined gets the address of the stop, and so does the one that calls it; a third does not run for
/// long.
#[test]
fn functions_with_loops_look_for_a_stop() {
    let text = format!(
        "define internal i32 @until(ptr %flag, i32 %wanted) {{
            br label %round
         round:
            %n = phi i32 [ 1, %0 ], [ %next, %round ]
            %now = load atomic i32, ptr %flag monotonic, align 4
            %next = add i32 %n, 1
            %more = icmp ult i32 %now, %wanted
            br i1 %more, label %round, label %end
         end:
            ret i32 %n
         }}
         define internal i32 @twice(ptr %flag, i32 %wanted) {{
            %a = tail call i32 @until(ptr %flag, i32 %wanted) memory(argmem: read)
            %b = call i32 @until(ptr %flag, i32 7)
            %sum = add i32 %a, %b
            ret i32 %sum
         }}
         define internal i32 @short(i32 %x) {{
            %y = add i32 %x, 1
            ret i32 %y
         }}
         define void @__elinvar_entry(ptr %data) {{
            %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
            %y = call i32 @short(i32 %i)
            %n = call i32 @twice(ptr %data, i32 %y)
            store i32 %n, ptr %data, align 4
            ret void
         }}
         {DECLARATIONS}"
    );
    let module = parse(&text);
    verify(&module).unwrap_or_else(|errors| panic!("the input is wrong: {errors:?}"));
    for lanes in [1, 8] {
        let options = Options {
            group: [64, 1, 1].into(),
            lanes,
            registers: 16,
            gathers: true,
            half_arithmetic: false,
            scalef: false,
            name: "test".into(),
            invariant_bytes: Vec::new(),
            threadgroup_args: vec![false],
            checks: None,
            stoppable: true,
            objects: SizeBound::DEFAULT,
            ascending: false,
        };
        let ir = compile(&module, &options).unwrap().ir;
        verify(&parse(&ir)).unwrap_or_else(|errors| panic!("{errors:?}\n{ir}"));
        let lines = |what: &str| ir.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
        let calls: Vec<_> = lines("call i32 @until(").into_iter().chain(lines("call i32 @twice(")).collect();
        assert!(calls.len() >= 3, "{ir}");
        assert!(calls.iter().all(|call| call.trim().ends_with("ptr %stop)")), "{calls:#?}");
        assert!(lines("call i32 @short(").iter().all(|call| !call.contains("%stop")), "{ir}");
        // One in the loop, one behind each call of one that looks.
        assert_eq!(lines("load atomic i8, ptr %stop monotonic").len(), 1 + calls.len(), "{ir}");
    }
}

/// An index without sign is gathered as a signed number of 32 bits, in checked code as well, but not where another term
/// could make it large.
#[test]
fn indices_are_signed_only_where_that_is_exact() {
    let code = |after: &str, lanes: u32, checked: bool| {
        let text = format!(
            "define void @__elinvar_entry(ptr %o, ptr %y) {{
               %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
               %w = zext i32 %t to i64
               %at = getelementptr i32, ptr %o, i64 %w
               %i = load i32, ptr %at, align 4
               %z = zext i32 %i to i64
               %q = getelementptr float, ptr %y, i64 %z
               %p = getelementptr float, ptr %q, i64 {after}
               %v = load float, ptr %p, align 4
               store float %v, ptr %at, align 4
               ret void
             }}
             {DECLARATIONS}"
        );
        let options = Options {
            group: [64, 1, 1].into(),
            lanes,
            registers: 16,
            gathers: true,
            half_arithmetic: false,
            scalef: false,
            name: "test".into(),
            invariant_bytes: Vec::new(),
            threadgroup_args: vec![false; 2],
            checks: checked.then(|| given(&[0, 0])),
            stoppable: false,
            objects: SizeBound::DEFAULT,
            ascending: false,
        };
        compile(&parse(&text), &options).expect("compiles").ir
    };
    for lanes in [2, 4, 8, 16, 32] {
        for checked in [false, true] {
            let signed = |after: &str| code(after, lanes, checked).contains(&format!("sext <{lanes} x i32>"));
            assert!(signed("0") && signed("500") && signed("-3"), "{lanes} lanes, checked: {checked}");
            assert!(!signed("-4294967000"), "{lanes} lanes, checked: {checked}");
        }
    }
}

/// Compile an entry of two buffers with this body, with bounds checks, in vectors of eight.
fn checked(text: &str) -> String {
    let text = format!("define void @__elinvar_entry(ptr %data, ptr %out) {{\n{text}\n}}\n{DECLARATIONS}");
    let options = Options {
        group: [64, 1, 1].into(),
        lanes: 8,
        registers: 16,
        gathers: true,
        half_arithmetic: false,
        scalef: false,
        name: "test".into(),
        invariant_bytes: Vec::new(),
        threadgroup_args: vec![false; 2],
        checks: Some(given(&[0, 0])),
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    };
    let compiled = compile(&parse(&text), &options).unwrap_or_else(|error| panic!("{error}"));
    verify(&parse(&compiled.ir)).unwrap_or_else(|errors| panic!("{errors:?}\n{}", compiled.ir));
    compiled.ir
}

#[test]
fn checked_code_adds_to_nothing_undefined() {
    let sum = |value: &str| {
        let text = format!(
            "%t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
             %before = load i32, ptr %data, align 4
             %own = add i32 %before, %t
             %sum = add i32 %own, {value}
             %p = getelementptr i32, ptr %out, i32 %t
             store i32 %sum, ptr %p, align 4
             ret void"
        );
        checked(&text)
    };
    for value in ["undef", "poison"] {
        assert_eq!(sum(value), sum("zeroinitializer"), "{value}");
    }
}

#[test]
fn a_frozen_pointer_is_checked_as_what_it_was() {
    let sites = |of: &str| {
        let text = format!(
            "%t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
             %frozen = freeze ptr %data
             %p = getelementptr i32, ptr {of}, i32 %t
             store i32 1, ptr %p, align 4
             ret void"
        );
        checked(&text).matches("elinvar_record_fault").count()
    };
    assert_eq!(sites("%frozen"), sites("%data"));
}

#[test]
fn rows_in_descending_order_are_loaded_whole() {
    let loads = |index: &str| {
        let text = format!(
            "define void @__elinvar_entry(ptr %data, ptr %out) {{
               %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
               %back = sub i32 63, %t
               %wide = zext i32 %t to i64
               %index = zext i32 {index} to i64
               %p = getelementptr i32, ptr %data, i64 %index
               %v = load i32, ptr %p, align 4
               %q = getelementptr i32, ptr %out, i64 %wide
               store i32 %v, ptr %q, align 4
               ret void
             }}
             {DECLARATIONS}"
        );
        let ir = vectorized(&text, [64, 1, 1], &[false; 2], 8).expect("compiles").ir;
        (ir.contains("masked.gather"), ir.contains("i32 7, i32 6, i32 5, i32 4, i32 3, i32 2, i32 1, i32 0"))
    };
    assert_eq!(loads("%t"), (false, false));
    assert_eq!(loads("%back"), (false, true));
}

/// The code of a function across a simdgroup, of a word and perhaps a number.
fn exchanged(function: &str, number: Option<&str>) -> String {
    let (parameter, argument) = match number {
        Some(number) => (", i16", format!(", i16 {number}")),
        None => ("", String::new()),
    };
    let text = format!(
        "define void @__elinvar_entry(ptr %data) {{
           %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
           %wide = zext i32 %t to i64
           %p = getelementptr i32, ptr %data, i64 %wide
           %v = load i32, ptr %p, align 4
           %own = trunc i32 %v to i16
           %s = call i32 @__elinvar_{function}_u32(i32 %v{argument})
           store i32 %s, ptr %p, align 4
           ret void
         }}
         declare i32 @__elinvar_{function}_u32(i32{parameter})
         {DECLARATIONS}"
    );
    vectorized(&text, [64, 1, 1], &[false], 32).expect("compiles").ir
}

#[test]
fn a_shuffle_by_a_constant_is_one_instruction() {
    for function in ["simd_shuffle_xor", "simd_shuffle_up", "simd_shuffle_down", "quad_shuffle_rotate_up"] {
        let ir = exchanged(function, Some("3"));
        assert!(ir.contains("shufflevector <32 x i32>") && !ir.contains("gather"), "{function}: {ir}");
        assert!(exchanged(function, Some("%own")).contains("gather"), "{function}");
    }
    let mask = |of: &dyn Fn(u32) -> u32| -> String {
        (0..32).map(|lane| format!("i32 {}", of(lane))).collect::<Vec<_>>().join(", ")
    };
    // Three before or behind the own lane, or what the lane has itself.
    let up = mask(&|lane| lane.checked_sub(3).unwrap_or(lane));
    let down = mask(&|lane| if lane < 29 { lane + 3 } else { lane });
    let around = mask(&|lane| lane / 4 * 4 + (lane + 1) % 4);
    for (function, lanes) in
        [("simd_shuffle_up", up), ("simd_shuffle_down", down), ("quad_shuffle_rotate_up", around)]
    {
        let ir = exchanged(function, Some("3"));
        assert!(ir.contains(&lanes), "{function}: {lanes}\n{ir}");
    }
    // In segments of eight the other value's lanes come in, which are behind the own ones.
    let up = mask(&|lane| if lane % 8 >= 3 { lane - 3 } else { 32 + lane + 5 });
    let down = mask(&|lane| if lane % 8 < 5 { lane + 3 } else { 32 + lane - 5 });
    for (function, lanes) in [("up", up), ("down", down)] {
        let text = format!(
            "define void @__elinvar_entry(ptr %data) {{
               %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
               %wide = zext i32 %t to i64
               %p = getelementptr i32, ptr %data, i64 %wide
               %v = load i32, ptr %p, align 4
               %w = mul i32 %v, 3
               %s = call i32 @__elinvar_simd_shuffle_and_fill_{function}_u32(i32 %v, i32 %w, i16 3, i16 8)
               store i32 %s, ptr %p, align 4
               ret void
             }}
             declare i32 @__elinvar_simd_shuffle_and_fill_{function}_u32(i32, i32, i16, i16)
             {DECLARATIONS}"
        );
        let ir = vectorized(&text, [64, 1, 1], &[false], 32).expect("compiles").ir;
        assert!(ir.contains(&lanes), "{function}: {lanes}\n{ir}");
    }
}

/// Each step adds what lies twice as far before.
#[test]
fn prefix_sums_take_a_step_for_each_bit_of_the_width() {
    let steps = |function: &str| exchanged(function, None).matches("= add <32 x i32>").count();
    let none = exchanged("simd_shuffle_xor", Some("1")).matches("= add <32 x i32>").count();
    assert_eq!(
        steps("simd_prefix_inclusive_sum") - none,
        5 * 2,
        "in the copy for all lanes and the masked one"
    );
    assert_eq!(steps("quad_prefix_inclusive_sum") - none, 2 * 2);
    let first = |distance: u32| {
        let lanes = (0..32).map(|lane: u32| lane.checked_sub(distance).unwrap_or(32));
        lanes.map(|lane| format!("i32 {lane}")).collect::<Vec<_>>().join(", ")
    };
    let ir = exchanged("simd_prefix_inclusive_sum", None);
    for distance in [1, 2, 4, 8, 16] {
        assert!(ir.contains(&first(distance)), "{distance}: {ir}");
    }
}

/// Whether steps behind one without a thread inside a branch are left away, up to the next barrier.
fn leaves_steps_away(before: &str, condition: &str) -> bool {
    let text = format!(
        "define void @__elinvar_entry(ptr %data, ptr %out) {{
           %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
           %n = load i32, ptr %data, align 4
           {before}
           %c = {condition}
           br i1 %c, label %work, label %join
         work:
           %w = zext i32 %t to i64
           %p = getelementptr i32, ptr %out, i64 %w
           store i32 1, ptr %p, align 4
           br label %join
         join:
           call void @__elinvar_threadgroup_barrier(i32 3)
           store i32 2, ptr %data, align 4
           ret void
         }}
         {DECLARATIONS}"
    );
    let ir = vectorized(&text, [64, 1, 1], &[false; 2], 8).expect("compiles").ir;
    ir.contains("%last")
}

#[test]
fn steps_behind_the_last_with_something_to_do_are_left_away() {
    for condition in
        ["icmp ult i32 %t, %n", "icmp ule i32 %t, 9", "icmp ugt i32 %n, %t", "icmp slt i32 %t, %n"]
    {
        assert!(leaves_steps_away("", condition), "{condition}");
    }
    for condition in ["icmp ugt i32 %t, %n", "icmp eq i32 %t, 0"] {
        // There the others go to what is empty only where all behind fail the test.
        assert_eq!(leaves_steps_away("", condition), condition.contains("eq"), "{condition}");
    }
    // Numbers that grow with the thread, as long as they do not wrap.
    for (number, grows) in [
        ("mul i32 %t, 3", true),
        ("mul i32 %t, 100000000", false),
        ("add i32 %t, 4294967232", true),
        ("add i32 %t, 4294967233", false),
        ("shl i32 %t, 25", true),
        ("shl i32 %t, 27", false),
        ("lshr i32 %t, 2", true),
        ("udiv i32 %t, 3", true),
        ("xor i32 %t, 1", false),
        ("sub i32 63, %t", false),
    ] {
        let before = format!("%x = {number}");
        assert_eq!(leaves_steps_away(&before, "icmp ult i32 %x, %n"), grows, "{number}");
    }
    // Behind a branch that all threads take together, but not in a loop that comes back.
    let shared = "%even = trunc i32 %n to i1\nbr i1 %even, label %a, label %b\na:\nbr label %b\nb:";
    assert!(leaves_steps_away(shared, "icmp ult i32 %t, %n"));
    let looped = "br label %again\nagain:\n%r = phi i32 [ 0, %0 ], [ %s, %again ]\n%s = add i32 %r, 1
        %more = icmp ult i32 %s, %t\nbr i1 %more, label %again, label %left\nleft:";
    assert!(!leaves_steps_away(looped, "icmp ult i32 %t, %n"));
    assert!(!leaves_steps_away("store i32 3, ptr %out, align 4", "icmp ult i32 %t, %n"));
}

/// Values that follow from positions in a few steps are computed again behind a barrier; others are kept for each thread.
#[test]
fn cheap_values_are_not_kept_across_a_barrier() {
    let kept = |value: &str| {
        let text = format!(
            "%t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
             %w = zext i32 %t to i64
             %p = getelementptr i32, ptr %data, i64 %w
             {value}
             call void @__elinvar_threadgroup_barrier(i32 3)
             store i32 %v, ptr %p, align 4
             ret void"
        );
        body(&text).expect("compiles").scratch_bytes
    };
    let none = kept("%v = add i32 %t, 1");
    assert_eq!(kept("%v = load i32, ptr %p, align 4"), none + 64 * 4);
    let chain = |name: &str, steps: u32| -> String {
        let before = |step: u32| if step == 0 { "%t".to_owned() } else { format!("%{name}{step}") };
        (0..steps).map(|step| format!("%{name}{} = add i32 {}, 7\n", step + 1, before(step))).collect()
    };
    // Sixteen steps in all, however they are spread over both sides.
    for left in 1..=14 {
        let sum =
            |right: u32| chain("a", left) + &chain("b", right) + &format!("%v = add i32 %a{left}, %b{right}");
        assert_eq!(kept(&sum(15 - left)), none, "{left}");
        assert_eq!(kept(&sum(16 - left)), none + 64 * 4, "{left}");
    }
    assert_eq!(kept("%d = udiv i32 %t, 3\n%v = add i32 %d, 1"), none + 64 * 4);
}
