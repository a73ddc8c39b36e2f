//! What kernels become for NVPTX, as text, and what is refused.

use elinvar_ir::Module;
use elinvar_spmd::Error;
use elinvar_spmd::bounds::Given;
use elinvar_spmd::nvptx::{Argument, Extent, Options, Parameter, Prepared, prepare};

const POINTER: Argument = Argument::Pointer { constant: false };

fn prepared(text: &str, arguments: &[Argument], checked: bool) -> Result<Prepared, Error> {
    let options = Options {
        name: "kernel".into(),
        arguments: arguments.to_vec(),
        approximate: false,
        max_threads: Some(256),
        checks: checked.then(|| vec![Given { bytes: 0, align: 16 }; arguments.len()]),
        tensor_products: false,
    };
    prepare(&Module::parse(text).unwrap(), &options)
}

fn ir(text: &str, arguments: &[Argument]) -> String {
    let prepared = prepared(text, arguments, false).unwrap();
    let module = Module::parse(&prepared.ir).unwrap_or_else(|error| panic!("{error} in\n{}", prepared.ir));
    let errors = elinvar_ir::verify(&module);
    assert!(errors.is_ok(), "{errors:?} in\n{}", prepared.ir);
    prepared.ir
}

/// A kernel of two buffers that is `body`.
fn kernel(body: &str) -> String {
    format!(
        "define void @__elinvar_entry(ptr %in, ptr %out) {{\n{body}\n}}
        declare i32 @__elinvar_thread_position_in_threadgroup(i32)
        declare void @__elinvar_threadgroup_barrier(i32)
        declare void @__elinvar_simdgroup_barrier(i32)
        declare i32 @__elinvar_simd_sum_u32(i32)
        declare i32 @__elinvar_simd_broadcast_u32(i32, i16)
        declare i32 @__elinvar_simd_shuffle_u32(i32, i16)
        declare i32 @bcmp(ptr, ptr, i64)
        declare float @llvm.pow.f32(float, float)"
    )
}

const SUM: &str = "%v = load i32, ptr %in, align 4
    %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)";

#[test]
fn a_kernel_and_its_prologue() {
    insta::assert_snapshot!(ir(include_str!("data/add.ll"), &[POINTER; 2]));
}

#[test]
fn parameters_are_the_arguments_and_what_the_launch_adds() {
    let text = kernel("ret void");
    let arguments = [Argument::Threadgroup, Argument::Value { bytes: 8, align: 4 }];
    let plain = prepared(&text, &arguments, false).unwrap().parameters;
    let given = [0, 1].map(|index| Parameter::Argument(index, arguments[index]));
    let sizes = [
        Parameter::Threads(0),
        Parameter::Threads(1),
        Parameter::Threads(2),
        Parameter::Extent,
        Parameter::Linear(0),
        Parameter::Linear(1),
    ];
    assert_eq!(plain, [&given[..], &sizes].concat());
    let checked = prepared(&text, &arguments, true).unwrap();
    let more = [Parameter::Record, Parameter::Bytes(0), Parameter::Bytes(1)];
    assert_eq!(checked.parameters, [&given[..], &sizes, &more].concat());
    assert!(checked.checks.is_some());
}

#[test]
fn extents_are_quick_where_all_simdgroups_are_whole() {
    for (threads, group, extent) in [
        ([1024, 1, 1], [64, 1, 1], Extent::Flat),
        ([1024, 1, 1], [16, 1, 1], Extent::Edged),
        ([1000, 1, 1], [64, 1, 1], Extent::Edged),
        ([64, 64, 1], [16, 4, 1], Extent::Whole),
        ([64, 62, 1], [16, 4, 1], Extent::Edged),
        ([32, 1, 2], [32, 1, 1], Extent::Whole),
    ] {
        assert_eq!(Extent::of(threads, group), extent, "{threads:?} in {group:?}");
    }
}

#[test]
fn threadgroup_variables_are_shared_and_many_are_dynamic() {
    let with = |count: u32| {
        let variable = format!(
            "@tile = internal global [{count} x float] undef, section \"elinvar.threadgroup\", align 4\n\
             @llvm.compiler.used = appending global [1 x ptr] [ptr @tile], section \"llvm.metadata\"\n"
        );
        let body = "%p = getelementptr float, ptr @tile, i64 3\nstore float 1.0, ptr %p, align 4\nret void";
        prepared(&(variable + &kernel(body)), &[POINTER, POINTER], false).unwrap()
    };
    let few = with(64);
    assert_eq!((few.static_bytes, few.dynamic_base), (256, 0));
    assert!(
        few.ir.contains("@tile = internal unnamed_addr addrspace(3) global [64 x float] undef, align 16"),
        "{}",
        few.ir
    );
    assert!(few.ir.contains("addrspacecast (ptr addrspace(3) @tile to ptr)"), "{}", few.ir);
    let many = with(20_000);
    assert_eq!((many.static_bytes, many.dynamic_base), (0, 80_000));
    assert!(!many.ir.contains("@tile"), "{}", many.ir);
}

#[test]
fn threadgroup_variables_are_whole_words() {
    let text = |ty: &str| {
        let variable =
            format!("@odd = internal global {ty} undef, section \"elinvar.threadgroup\", align 1\n");
        ir(&(variable + &kernel("store i8 1, ptr @odd, align 1\nret void")), &[POINTER; 2])
    };
    for (ty, there) in [
        ("i8", "[4 x i8]"),
        ("[3 x i8]", "[4 x i8]"),
        ("[3 x i16]", "[8 x i8]"),
        ("[8 x i8]", "[8 x i8]"),
        ("[2 x i16]", "[2 x i16]"),
    ] {
        let (text, line) =
            (text(ty), format!("@odd = internal unnamed_addr addrspace(3) global {there} undef, align 16"));
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn barriers_of_device_memory_have_a_fence() {
    let text = |flags| {
        ir(
            &kernel(&format!("call void @__elinvar_threadgroup_barrier(i32 {flags})\nret void")),
            &[POINTER; 2],
        )
    };
    for (flags, fences) in [(0, false), (2, false), (1, true), (3, true), (4, true)] {
        let text = text(flags);
        assert!(text.contains("call void @llvm.nvvm.barrier0()"), "{text}");
        assert_eq!(text.contains("call void @llvm.nvvm.membar.gl()"), fences, "{flags}: {text}");
    }
}

#[test]
fn atomic_operations_that_order_others_have_fences() {
    let shape = |line: &str| -> Vec<&str> {
        let text = ir(&kernel(&format!("{line}\nret void")), &[POINTER; 2]);
        let kinds = ["fence", "monotonic"];
        let of = |line: &str| match line {
            _ if line.contains("call void @llvm.nvvm.membar.gl()") => Some(kinds[0]),
            _ if line.contains("monotonic") => Some(kinds[1]),
            _ => None,
        };
        assert!(!text.contains("seq_cst") && !text.contains("acq") && !text.contains("release"), "{text}");
        text.lines().filter_map(of).collect()
    };
    let both = ["fence", "monotonic", "fence"];
    assert_eq!(shape("%x = load atomic i32, ptr %in monotonic, align 4"), both[1..2]);
    assert_eq!(shape("%x = load atomic i32, ptr %in acquire, align 4"), both[1..]);
    assert_eq!(shape("store atomic i32 1, ptr %in release, align 4"), both[..2]);
    assert_eq!(shape("store atomic i32 1, ptr %in seq_cst, align 4"), both);
    assert_eq!(shape("%x = atomicrmw add ptr %in, i32 1 acq_rel, align 4"), both);
    assert_eq!(shape("%x = atomicrmw add ptr %in, i32 1 monotonic, align 4"), both[1..2]);
    assert_eq!(shape("%x = cmpxchg ptr %in, i32 1, i32 2 monotonic acquire, align 4"), both[1..]);
}

/// The votes of a kernel, beside the one in its prologue.
fn votes(body: &str) -> usize {
    ir(&kernel(&format!("{SUM}\n{body}")), &[POINTER; 2])
        .matches("call i32 @llvm.nvvm.vote.ballot.sync(")
        .count()
        - 1
}

#[test]
fn lanes_that_stay_together_do_not_vote() {
    let straight = "%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nret void";
    assert_eq!(votes(straight), 0);
    // A branch on what was loaded from one address, and a loop that counts to it.
    let shared = "%c = icmp eq i32 %v, 0\nbr i1 %c, label %a, label %b
        a:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %b
        b:\nbr label %loop
        loop:\n%i = phi i32 [ 0, %b ], [ %n, %loop ]\n%r = call i32 @__elinvar_simd_sum_u32(i32 %i)
        %n = add i32 %i, 1\n%m = icmp ult i32 %n, %v\nbr i1 %m, label %loop, label %end
        end:\nstore i32 %r, ptr %out, align 4\nret void";
    assert_eq!(votes(shared), 0);
    // Behind a branch that lanes take apart they are all there again.
    let joined = "%c = icmp eq i32 %t, 3\nbr i1 %c, label %a, label %b
        a:\nstore i32 %t, ptr %out, align 4\nbr label %b
        b:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nret void";
    assert_eq!(votes(joined), 0);
    // A branch on what all get from one lane, by a number that they share.
    for lane in ["3", "%near"] {
        let given = format!(
            "%near = trunc i32 %v to i16\n%g = call i32 @__elinvar_simd_broadcast_u32(i32 %t, i16 {lane})
            %h = call i32 @__elinvar_simd_shuffle_u32(i32 %g, i16 {lane})\n%c = icmp eq i32 %h, 3
            br i1 %c, label %a, label %b
            a:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %b
            b:\nret void"
        );
        assert_eq!(votes(&given), 0, "{lane}");
    }
}

#[test]
fn lanes_vote_where_they_part() {
    let branch = "%c = icmp eq i32 %t, 3\nbr i1 %c, label %a, label %b
        a:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %b
        b:\nret void";
    assert_eq!(votes(branch), 1);
    // On the branch of a latch.
    let looped = "br label %loop
        loop:\n%i = phi i32 [ 0, %0 ], [ %n, %loop ]\n%s = call i32 @__elinvar_simd_sum_u32(i32 %i)
        %n = add i32 %i, 1\n%m = icmp ult i32 %n, %t\nbr i1 %m, label %loop, label %end
        end:\nstore i32 %s, ptr %out, align 4\nret void";
    assert_eq!(votes(looped), 1);
    // On a value of another lane, by a number that is each lane's own.
    let given = "%own = trunc i32 %t to i16\n%g = call i32 @__elinvar_simd_shuffle_u32(i32 %v, i16 %own)
        %c = icmp eq i32 %g, 3\nbr i1 %c, label %a, label %b
        a:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %b
        b:\nret void";
    assert_eq!(votes(given), 1);
    // On a value that a branch has chosen which lanes took apart.
    let chosen = "%c = icmp eq i32 %t, 3\nbr i1 %c, label %a, label %b
        a:\nstore i32 %t, ptr %out, align 4\nbr label %b
        b:\n%p = phi i32 [ 0, %0 ], [ 1, %a ]\n%d = icmp eq i32 %p, 0\nbr i1 %d, label %x, label %y
        x:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %y
        y:\nret void";
    assert_eq!(votes(chosen), 1);
}

/// Lanes that remain in a loop may wait at its barrier for those that have returned, which therefore must not wait for them.
#[test]
fn lanes_that_return_from_a_loop_do_not_vote_on_its_next_iteration() {
    let start = "br label %loop
        loop:\n%i = phi i32 [ 0, %0 ], [ %n, %next ]FIRST\n%c = icmp eq i32 %t, %i\nbr i1 %c, label %leave, label %stay
        leave:\nstore i32 %i, ptr %out, align 4\nret void
        stay:\ncall void @__elinvar_threadgroup_barrier(i32 2)\n%s = call i32 @__elinvar_simd_sum_u32(i32 %i)
        %n = add i32 %i, 1\n";
    let one_latch = format!(
        "{}%m = icmp ult i32 %n, %v\nbr i1 %m, label %next, label %end\nnext:\nbr label %loop\nend:\nret void",
        start.replace("FIRST", "")
    );
    // The ballots on the branches in `loop` and `stay`.
    assert_eq!(votes(&one_latch), 2);
    let two_latches = format!(
        "{}%m = icmp ult i32 %s, %t\nbr i1 %m, label %next, label %other\nnext:\nbr label %loop
        other:\nbr label %loop",
        start.replace("FIRST", ", [ %n, %other ]").replace("store i32 %i, ptr %out, align 4", "")
    );
    // The ballot on the branch in `loop`, and yes on both back edges.
    assert_eq!(votes(&two_latches), 3);
    let text = ir(&kernel(&format!("{SUM}\n{two_latches}")), &[POINTER; 2]);
    assert!(!text.contains(", i1 false)"), "{text}");
}

#[test]
fn lanes_vote_for_the_ways_into_a_block_and_against_those_past_it() {
    let votes = |end: &str| {
        let text = ir(
            &kernel(&format!(
                "{SUM}\n%c = icmp eq i32 %t, 3\nbr i1 %c, label %then, label %other
                other:\nstore i32 %t, ptr %out, align 4\n%d = icmp eq i32 %t, 5\nbr i1 %d, label %then, label %end
                then:\n%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\nbr label %end
                end:\n{end}ret void"
            )),
            &[POINTER; 2],
        );
        let count =
            |with: &str| text.lines().filter(|l| l.contains("vote.ballot.sync(") && l.contains(with)).count();
        [count(", i1 true)"), count(", i1 false)")]
    };
    let meets = "%e = call i32 @__elinvar_simd_sum_u32(i32 %v)\nstore i32 %e, ptr %out, align 4\n";
    assert_eq!(votes(meets), [2, 1]);
    assert_eq!(votes(""), [2, 0], "no vote waits for lanes that have exited");
}

#[test]
fn lanes_vote_on_the_cases_that_lead_to_a_block() {
    let cases = |to: &str| -> Vec<u32> {
        let sum = "%s = call i32 @__elinvar_simd_sum_u32(i32 %t)\nstore i32 %s, ptr %out, align 4\n";
        let blocks = ["a", "b", "c"]
            .map(|block| format!("{block}:\n{}br label %end\n", if block == to { sum } else { "" }));
        let body = format!(
            "{SUM}\nswitch i32 %t, label %c [ i32 10, label %a i32 13, label %a i32 11, label %b ]\n{}end:\nret void",
            blocks.concat()
        );
        let text = ir(&kernel(&body), &[POINTER; 2]);
        let compared = |case: &u32| {
            text.lines().any(|line| line.contains("icmp eq i32") && line.ends_with(&format!(", {case}")))
        };
        (10..14).filter(compared).collect()
    };
    assert_eq!(cases("a"), [10, 13]);
    assert_eq!(cases("b"), [11]);
    // It is none of those that lead elsewhere.
    assert_eq!(cases("c"), [10, 11, 13]);
}

/// A call of a function across a simdgroup that is declared here.
fn calls(declaration: &str, call: &str) -> String {
    let body =
        format!("{SUM}\n%s = call {call}\n%b = zext i1 0 to i32\nstore i32 %b, ptr %out, align 4\nret void");
    ir(&(kernel(&body) + "\ndeclare " + declaration), &[POINTER; 2])
}

#[test]
fn prefix_sums_shuffle_by_each_power_of_two() {
    let distances = |group: &str| -> Vec<u32> {
        let name = format!("@__elinvar_{group}_prefix_inclusive_sum_u32");
        let text = calls(&format!("i32 {name}(i32)"), &format!("i32 {name}(i32 %t)"));
        let of = |line: &str| {
            let (_, arguments) = line.split_once("call i32 @elinvar.shfl.up.")?;
            arguments.split(", i32 ").nth(1)?.parse().ok()
        };
        text.lines().filter_map(of).collect()
    };
    assert_eq!(distances("simd"), [1, 2, 4, 8, 16]);
    assert_eq!(distances("quad"), [1, 2]);
}

#[test]
fn the_first_lane_is_asked_for_in_groups_of_both_widths() {
    for (group, last) in [("simd", 31), ("quad", 3)] {
        let name = format!("@__elinvar_{group}_is_first");
        let text = calls(&format!("i1 {name}()"), &format!("i1 {name}()"));
        assert!(text.contains(&format!("%own = and i32 %lane, {last}")), "{text}");
    }
}

/// Two pairs of factors of which the second adds to the first are one product of twice the depth, with two left factors one of
/// twice the rows.
#[test]
fn products_of_several_tiles_are_one() {
    const PRODUCT: &str = "@__elinvar_simd_matrix_multiply_accumulate_f32";
    let product = |name: &str, [left, right]: [&str; 2], sums: [&str; 2]| -> String {
        let element = |at: usize| {
            format!(
                "%{name}{at} = call float {PRODUCT}(float %{left}0, float %{left}1, float %{right}0, float %{right}1, \
                 float {}, float {}, i32 {at})\n",
                sums[0], sums[1]
            )
        };
        element(0) + &element(1)
    };
    let steps = |products: &str, results: &[&str]| -> Vec<&'static str> {
        let factor = |name: &str, at: usize| {
            format!(
                "%p.{name}{at} = getelementptr half, ptr %in, i32 %t\n%h.{name}{at} = load half, ptr %p.{name}{at}, align 2
                %{name}{at} = fpext half %h.{name}{at} to float\n"
            )
        };
        let factors: String =
            ["a", "b", "x", "y"].iter().flat_map(|name| [factor(name, 0), factor(name, 1)]).collect();
        let stores: String = results
            .iter()
            .map(|name| format!("store float %{name}0, ptr %out\nstore float %{name}1, ptr %out\n"))
            .collect();
        let declaration = format!("\ndeclare float {PRODUCT}(float, float, float, float, float, float, i32)");
        let text = kernel(&format!("{SUM}\n{factors}{products}{stores}ret void")) + &declaration;
        let options = Options {
            name: "kernel".into(),
            arguments: vec![POINTER; 2],
            approximate: true,
            max_threads: None,
            checks: None,
            tensor_products: false,
        };
        let ir = prepare(&Module::parse(&text).unwrap(), &options).unwrap().ir;
        let called = |step: &&str| {
            ir.contains(&format!(
                "call {{ {} }} @elinvar.product.Tiles.{step}.half(",
                vec!["float"; if step.starts_with('2') { 4 } else { 2 }].join(", ")
            ))
        };
        ["1.1", "1.2", "2.1", "2.2"].into_iter().filter(called).collect()
    };
    let zero = ["0.0", "0.0"];
    let first = product("c", ["a", "x"], zero);
    assert_eq!(steps(&first, &["c"]), ["1.1"]);
    assert_eq!(steps(&(first.clone() + &product("d", ["b", "y"], ["%c0", "%c1"])), &["d"]), ["1.2"]);
    assert_eq!(steps(&(first.clone() + &product("d", ["b", "x"], zero)), &["c", "d"]), ["2.1"]);
    // What else looks at a sum keeps it from being joined.
    assert_eq!(steps(&(first + &product("d", ["b", "y"], ["%c0", "%c1"])), &["c", "d"]), ["1.1"]);
}

#[test]
fn a_barrier_of_a_simdgroup_is_one_of_its_lanes() {
    let text = ir(&kernel("call void @__elinvar_simdgroup_barrier(i32 2)\nret void"), &[POINTER; 2]);
    assert!(text.contains("call void @llvm.nvvm.bar.warp.sync(i32 %"), "{text}");
    assert!(!text.contains("call void @__elinvar_simdgroup_barrier"), "{text}");
}

/// Of a shift by all its bits nothing is known, so neither is whether simdgroups reach different barriers behind it.
#[test]
fn only_what_is_known_of_shifts_refuses_a_barrier() {
    let checked = |shift: &str| {
        let text = kernel(&format!(
            "{SUM}\n%s = {shift}\n%x = add i32 %s, %t\n%c = icmp ult i32 %x, 16\nbr i1 %c, label %a, label %b
            a:\ncall void @__elinvar_threadgroup_barrier(i32 2)\nbr label %b
            b:\ncall void @__elinvar_threadgroup_barrier(i32 2)\nret void"
        ));
        elinvar_spmd::nvptx::check_group(&Module::parse(&text).unwrap(), [64, 1, 1])
    };
    for shift in ["shl", "lshr", "ashr"] {
        let known = checked(&format!("{shift} i32 %t, 31"));
        assert!(matches!(known, Err(Error::DivergentBarrier { .. })), "{shift}: {known:?}");
        assert_eq!(checked(&format!("{shift} i32 %t, 32")), Ok(()), "{shift}");
    }
}

#[test]
fn what_the_target_does_not_know_is_refused() {
    let refused = |body: &str| prepared(&kernel(body), &[POINTER; 2], false).unwrap_err().to_string();
    assert!(
        refused("%x = call i32 @bcmp(ptr %in, ptr %in, i64 4)\nret void").contains("`bcmp` on an NVIDIA GPU")
    );
    let power = "%x = call float @llvm.pow.f32(float 1.0, float 2.0)\nret void";
    assert!(refused(power).contains("on an NVIDIA GPU"));
    let pointer = "%f = load ptr, ptr %in, align 8\ncall void %f()\nret void";
    assert!(refused(pointer).contains("function pointer"));
}
