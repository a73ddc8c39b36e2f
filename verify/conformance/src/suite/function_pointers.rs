//! Function pointers and tables of visible functions.

use elinvar::{Arg, Device, Error, Grid, Source};

use super::{CaseResult, expect_all, kernel, run};

cases!("function_pointers": pointers, in_structs, with_large_results, tables, tables_by_position, with_barriers, refused_tables);

const COUNT: usize = 200;

/// Pointers from a choice, a constant array and a parameter; divergent calls.
fn pointers(device: &Device) -> CaseResult {
    let text = "
        uint twice(uint x) { return 2 * x; }
        uint square(uint x) { return x * x; }
        uint next(uint x) { return x + 1; }
        typedef uint (*Map)(uint);
        constant Map maps[3] = {twice, square, next};
        uint repeat(Map f, uint x, uint times) { for (uint i = 0; i < times; ++i) { x = f(x); } return x; }
        kernel void apply(device uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            Map f = i % 2 ? twice : square;
            y[i] = f(i) + 1000 * repeat(maps[i % 3], i % 7, i % 4);
        }";
    let apply = kernel(device, "apply", text)?;
    let mut y = device.buffer::<u32>(COUNT)?;
    run(device, &apply, Grid::threads(COUNT as u32), (&mut y,))?;
    let maps: [fn(u32) -> u32; 3] = [|x| x.wrapping_mul(2), |x| x.wrapping_mul(x), |x| x.wrapping_add(1)];
    expect_all(&y.to_vec()?, |i| {
        let i = i as u32;
        let f = maps[usize::from(i.is_multiple_of(2))];
        f(i).wrapping_add(1000_u32.wrapping_mul((0..i % 4).fold(i % 7, |x, _| maps[i as usize % 3](x))))
    });
    Ok(())
}

/// Pointers in structs in memory of threads, with a null pointer that is not called.
fn in_structs(device: &Device) -> CaseResult {
    let text = "
        float plus(float a, float b) { return a + b; }
        float times(float a, float b) { return a * b; }
        struct Operation { float (*f)(float, float); float operand; };
        kernel void chain(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            Operation list[3] = {{plus, 3.0f}, {times, 2.0f}, {nullptr, 0.0f}};
            if (i % 3 == 0) { list[2] = list[0]; }
            float x = i;
            for (uint k = 0; k < 3; ++k) { if (list[k].f) { x = list[k].f(x, list[k].operand); } }
            y[i] = x;
        }";
    let chain = kernel(device, "chain", text)?;
    let mut y = device.buffer::<f32>(COUNT)?;
    run(device, &chain, Grid::threads(COUNT as u32), (&mut y,))?;
    expect_all(&y.to_vec()?, |i| (i as f32 + 3.0) * 2.0 + if i % 3 == 0 { 3.0 } else { 0.0 });
    Ok(())
}

/// Structs as parameters and results, which are passed in memory.
fn with_large_results(device: &Device) -> CaseResult {
    let text = "
        struct Large { uint v[9]; };
        Large up(Large a, uint by) { for (uint k = 0; k < 9; ++k) { a.v[k] += by * k; } return a; }
        Large down(Large a, uint by) { for (uint k = 0; k < 9; ++k) { a.v[k] -= by; } return a; }
        void store(device uint* y, Large a) { for (uint k = 0; k < 9; ++k) { y[k] = a.v[k]; } }
        void drop(device uint* y, Large a) { y[0] = 7; }
        kernel void large(device uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            Large a;
            for (uint k = 0; k < 9; ++k) { a.v[k] = 100 + i; }
            Large (*change)(Large, uint) = i & 1 ? up : down;
            void (*end)(device uint*, Large) = i & 2 ? store : drop;
            end(y + 9 * i, change(a, i));
        }";
    let large = kernel(device, "large", text)?;
    let mut y = device.buffer::<u32>(9 * COUNT)?;
    run(device, &large, Grid::threads(COUNT as u32), (&mut y,))?;
    expect_all(&y.to_vec()?, |at| {
        let (i, k) = ((at / 9) as u32, (at % 9) as u32);
        match (i & 2, k) {
            (0, 0) => 7,
            (0, _) => 0,
            _ if i & 1 == 1 => 100 + i + i * k,
            _ => 100,
        }
    });
    Ok(())
}

const MAPS: &str = "
    [[visible]] float twice(float x) { return 2 * x; }
    [[visible]] float square(float x) { return x * x; }
    [[stitchable]] float next(float x) { return x + 1; }
    [[visible]] int other(int x) { return 77; }
    typedef float Map(float);
    kernel void map(visible_function_table<Map> maps [[buffer(3)]], device const uint* which [[buffer(0)]],
                    device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
        x[i] = maps[which[i]](x[i]);
    }";

fn tables(device: &Device) -> CaseResult {
    let map = kernel(device, "map", MAPS)?;
    let x: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let which: Vec<u32> = (0..COUNT as u32).map(|i| (i * 7) % 3).collect();
    let (which, mut x) = (device.buffer_with_data(&which)?, device.buffer_with_data(&x)?);
    let names = ["twice", "square", "next", "other"];
    let maps: [fn(f32) -> f32; 4] = [|x| 2.0 * x, |x| x * x, |x| x + 1.0, |_| 0.0];
    let mut expected: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    // The same code calls the functions of each table; the type of `other` is not that of the table.
    for table in [[0, 1, 2], [2, 1, 0], [2, 2, 2], [0, 3, 2]] {
        let names = table.map(|k| names[k]);
        run(device, &map, Grid::threads(COUNT as u32), (Arg::functions(names), &which, &mut x))?;
        for (i, value) in expected.iter_mut().enumerate() {
            *value = maps[table[(i * 7) % 3]](*value);
        }
        expect_all(&x.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// A table without an index, which follows the arguments before it, and a null table.
fn tables_by_position(device: &Device) -> CaseResult {
    let text = format!(
        "{MAPS}
        kernel void first(device float* x, visible_function_table<Map> maps, uint i [[thread_position_in_grid]]) {{
            Map* f = maps[0];
            [[function_groups(\"maps\")]] float y = f(x[i]);
            x[i] = y;
        }}
        kernel void maybe(device float* x, visible_function_table<Map> maps, uint i [[thread_position_in_grid]]) {{
            x[i] = is_null_visible_function_table(maps) ? -1.0f : maps[0](x[i]);
        }}
        kernel void all(device float* x, visible_function_table<Map> maps, uint i [[thread_position_in_grid]]) {{
            for (uint k = 0; k < maps.size(); ++k) x[i] = maps[k](x[i]);
            x[i] += maps.size() * 1000.0f + (maps.empty() ? 100.0f : 0.0f) + (maps != nullptr ? 10.0f : 0.0f);
        }}"
    );
    let all = kernel(device, "all", &text)?;
    let (first, maybe) = (kernel(device, "first", &text)?, kernel(device, "maybe", &text)?);
    let mut x = device.buffer_with_data(&[3_f32; COUNT])?;
    run(device, &first, Grid::threads(COUNT as u32), (&mut x, Arg::functions(["square"])))?;
    expect_all(&x.to_vec()?, |_| 9.0);
    run(device, &maybe, Grid::threads(COUNT as u32), (&mut x, Arg::functions(["next"])))?;
    expect_all(&x.to_vec()?, |_| 10.0);
    run(device, &maybe, Grid::threads(COUNT as u32), (&mut x, Arg::unbound()))?;
    expect_all(&x.to_vec()?, |_| -1.0);
    run(
        device,
        &all,
        Grid::threads(COUNT as u32),
        (&mut x, Arg::functions(["next", "next", "square", "twice"])),
    )?;
    expect_all(&x.to_vec()?, |_| 2.0 + 4010.0);
    run(device, &all, Grid::threads(COUNT as u32), (&mut x, Arg::unbound()))?;
    expect_all(&x.to_vec()?, |_| 2.0 + 4010.0 + 100.0);
    Ok(())
}

/// Functions that communicate between threads, called by all threads.
fn with_barriers(device: &Device) -> CaseResult {
    let text = "
        uint from_left(threadgroup uint* shared, uint i) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            return shared[(i + 63) % 64];
        }
        uint sum(threadgroup uint* shared, uint i) { return simd_sum(shared[i]); }
        kernel void exchange(device uint* y [[buffer(0)]], constant uint& which [[buffer(1)]], uint i [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            shared[i] = i;
            uint (*f)(threadgroup uint*, uint) = which ? from_left : sum;
            y[i] = f(shared, i);
        }";
    let exchange = kernel(device, "exchange", text)?;
    let mut y = device.buffer::<u32>(64)?;
    run(device, &exchange, Grid::threads(64).group(64), (&mut y, 1_u32))?;
    expect_all(&y.to_vec()?, |i| (i as u32 + 63) % 64);
    run(device, &exchange, Grid::threads(64).group(64), (&mut y, 0_u32))?;
    expect_all(&y.to_vec()?, |i| if i < 32 { 496 } else { 1520 });
    Ok(())
}

fn refused_tables(device: &Device) -> CaseResult {
    let map = kernel(device, "map", MAPS)?;
    let (which, mut x) = (device.buffer_with_data(&[0_u32])?, device.buffer_with_data(&[1_f32])?);
    let refused = |table: Arg, x: &mut elinvar::Buffer<f32>| match run(
        device,
        &map,
        Grid::threads(1),
        (table, &which, x),
    ) {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("expected InvalidArgument, got {other:?}"),
    };
    let unknown = refused(Arg::functions(["twice", "thrice"]), &mut x);
    for part in [
        "kernel `map`, argument 0 `maps`",
        "no `[[visible]]` function `thrice`",
        "`twice`, `square`, `next`, `other`",
    ] {
        assert!(unknown.contains(part), "{unknown}");
    }
    assert!(refused(Arg::functions([""; 0]), &mut x).contains("at least one function"));
    assert!(refused(Arg::values(&[1_u32]), &mut x).contains("takes functions"));
    let not_a_table =
        run(device, &map, Grid::threads(1), (Arg::functions(["twice"]), Arg::functions(["twice"]), &mut x));
    let text = not_a_table.expect_err("a buffer is needed").to_string();
    assert!(text.contains("argument 1 `which`") && text.contains("not a visible_function_table"), "{text}");
    // A checked kernel detects an index beyond the table.
    let source = format!("#include <metal_stdlib>\nusing namespace metal;\n{MAPS}");
    let checked = device.compile(Source::named("map.metal", source))?.checked_kernel("map")?;
    let outcome = checked
        .launch(
            &device.stream()?,
            Grid::threads(1),
            (Arg::functions(["twice"]), &device.buffer_with_data(&[5_u32])?, &mut x),
        )?
        .wait();
    let Err(Error::Fault(fault)) = outcome else {
        return Err(format!("expected a fault, got {outcome:?}").into());
    };
    assert!(
        !device.caps().features.names_accesses || fault.message.contains("element 6 of argument 0 `maps`"),
        "{fault}"
    );
    Ok(())
}
