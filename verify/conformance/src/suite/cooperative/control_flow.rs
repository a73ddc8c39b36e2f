//! Grid barriers in random control flow: nested loops of all kinds with `break` and `continue`, and branches, all of which the threads of a grid take
//! together; and barriers in macros.

use elinvar::{Device, Grid};

use super::{kernel, run};
use crate::suite::{CaseResult, expect_all};

cases!("cooperative": barriers_in_macros, random_control_flow, random_control_flow_in_depth, small_random_control_flow);

/// A uniform condition: whether a sum of a number, the rounds so far, and the loop counters around has a remainder.
#[derive(Clone, Copy)]
struct Condition {
    add: u32,
    by: u32,
    is: u32,
}

enum Statement {
    /// Each thread hands a value to another one, across a grid barrier.
    Exchange {
        from: u32,
        back: u32,
    },
    /// Each thread for itself.
    Mix(u32),
    If(Condition, Vec<Statement>, Vec<Statement>),
    Loop(Kind, u32, Vec<Statement>),
    Break(Condition),
    Continue(Condition),
}

#[derive(Clone, Copy)]
enum Kind {
    For,
    While,
    DoWhile,
}

/// Makes statements from a sequence of pseudorandom numbers.
struct Generator {
    state: u64,
    /// Exchanges that may still be made.
    left: u32,
}

impl Generator {
    fn below(&mut self, end: u32) -> u32 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.state >> 33) % u64::from(end)) as u32
    }

    fn condition(&mut self) -> Condition {
        let by = 2 + self.below(3);
        Condition { add: self.below(7), by, is: self.below(by) }
    }

    fn block(&mut self, depth: u32, in_loop: bool) -> Vec<Statement> {
        (0..2 + self.below(3)).map(|_| self.statement(depth, in_loop)).collect()
    }

    fn statement(&mut self, depth: u32, in_loop: bool) -> Statement {
        match self.below(9) {
            0..=2 if self.left > 0 => {
                self.left -= 1;
                Statement::Exchange { from: 1 + self.below(200), back: 1 + self.below(200) }
            }
            3 | 4 if depth > 0 => {
                let kind = [Kind::For, Kind::While, Kind::DoWhile][self.below(3) as usize];
                Statement::Loop(kind, 1 + self.below(4), self.block(depth - 1, true))
            }
            5 | 6 if depth > 0 => {
                let condition = self.condition();
                let then = self.block(depth - 1, in_loop);
                let otherwise = if self.below(2) == 0 { Vec::new() } else { self.block(depth - 1, in_loop) };
                Statement::If(condition, then, otherwise)
            }
            7 if in_loop => Statement::Break(self.condition()),
            8 if in_loop => Statement::Continue(self.condition()),
            _ => Statement::Mix(self.below(1000)),
        }
    }
}

/// The text of a condition within loops of this depth.
fn text_of(condition: Condition, loops: usize) -> String {
    let counters: String = (0..loops).map(|at| format!(" + c{at}")).collect();
    format!("({}u + rounds{counters}) % {}u == {}u", condition.add, condition.by, condition.is)
}

fn write(statements: &[Statement], loops: usize, out: &mut String) {
    for statement in statements {
        match statement {
            Statement::Mix(with) => out.push_str(&format!("value = value * 5u + {with}u;\n")),
            Statement::Exchange { from, back } => out.push_str(&format!(
                "memory[rounds % 2u * n + i] = value + {from}u;
                 elinvar::grid_barrier();
                 value = value * 3u + memory[rounds % 2u * n + (i + {back}u) % n];
                 rounds += 1u;\n"
            )),
            Statement::If(condition, then, otherwise) => {
                out.push_str(&format!("if ({}) {{\n", text_of(*condition, loops)));
                write(then, loops, out);
                if !otherwise.is_empty() {
                    out.push_str("} else {\n");
                    write(otherwise, loops, out);
                }
                out.push_str("}\n");
            }
            Statement::Loop(kind, count, body) => {
                let c = format!("c{loops}");
                let (head, end) = match kind {
                    Kind::For => (format!("for (uint {c} = 0; {c} < {count}u; ++{c}) {{"), "}".into()),
                    Kind::While => (format!("{{ uint {c} = ~0u; while (++{c} < {count}u) {{"), "} }".into()),
                    Kind::DoWhile => {
                        (format!("{{ uint {c} = 0; do {{"), format!("}} while (++{c} < {count}u); }}"))
                    }
                };
                out.push_str(&format!("{head}\n"));
                write(body, loops + 1, out);
                out.push_str(&format!("{end}\n"));
            }
            Statement::Break(condition) => {
                out.push_str(&format!("if ({}) break;\n", text_of(*condition, loops)))
            }
            Statement::Continue(condition) => {
                out.push_str(&format!("if ({}) continue;\n", text_of(*condition, loops)));
            }
        }
    }
}

/// Executes for all threads at once: they take one path.
struct Threads {
    values: Vec<u32>,
    rounds: u32,
    counters: Vec<u32>,
}

enum Flow {
    Next,
    Break,
    Continue,
}

impl Threads {
    fn holds(&self, condition: Condition) -> bool {
        let sum =
            self.counters.iter().fold(condition.add.wrapping_add(self.rounds), |sum, c| sum.wrapping_add(*c));
        sum % condition.by == condition.is
    }

    fn run(&mut self, statements: &[Statement]) -> Flow {
        for statement in statements {
            match statement {
                Statement::Mix(with) => {
                    self.values
                        .iter_mut()
                        .for_each(|value| *value = value.wrapping_mul(5).wrapping_add(*with));
                }
                Statement::Exchange { from, back } => {
                    let given: Vec<u32> = self.values.iter().map(|value| value.wrapping_add(*from)).collect();
                    for (i, value) in self.values.iter_mut().enumerate() {
                        *value =
                            value.wrapping_mul(3).wrapping_add(given[(i + *back as usize) % given.len()]);
                    }
                    self.rounds += 1;
                }
                Statement::If(condition, then, otherwise) => {
                    let taken = if self.holds(*condition) { then } else { otherwise };
                    match self.run(taken) {
                        Flow::Next => {}
                        leaves => return leaves,
                    }
                }
                Statement::Loop(_, count, body) => {
                    for counter in 0..*count {
                        self.counters.push(counter);
                        let flow = self.run(body);
                        self.counters.pop();
                        if let Flow::Break = flow {
                            break;
                        }
                    }
                }
                Statement::Break(condition) if self.holds(*condition) => return Flow::Break,
                Statement::Continue(condition) if self.holds(*condition) => return Flow::Continue,
                Statement::Break(_) | Statement::Continue(_) => {}
            }
        }
        Flow::Next
    }
}

fn random(device: &Device, seed: u64, depth: u32, (threads, group): (usize, usize)) -> CaseResult {
    let mut generator = Generator { state: seed, left: 8 };
    let mut statements = generator.block(depth, false);
    statements.push(Statement::Exchange { from: 1, back: 2 });
    let mut text = String::new();
    write(&statements, 0, &mut text);
    let kernel = kernel(
        device,
        "random",
        &format!(
            "kernel void random(device uint* out [[buffer(0)]], device uint* memory [[buffer(1)]], uint i [[thread_position_in_grid]],
                                uint n [[threads_per_grid]]) {{
                uint value = i * 2654435761u, rounds = 0u;
                {text}
                out[i] = value;
            }}"
        ),
    )?;
    let mut all = Threads {
        values: (0..threads as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect(),
        rounds: 0,
        counters: Vec::new(),
    };
    all.run(&statements);
    let (mut out, mut memory) = (device.buffer::<u32>(threads)?, device.buffer::<u32>(2 * threads)?);
    run(device, &kernel, Grid::threads(threads).group(group), (&mut out, &mut memory))?;
    expect_all(&out.to_vec()?, |i| all.values[i]);
    Ok(())
}

fn random_control_flow(device: &Device) -> CaseResult {
    [6, 12, 13, 21].into_iter().try_for_each(|seed| random(device, seed, 3, (300, 64)))
}

fn random_control_flow_in_depth(device: &Device) -> CaseResult {
    [6, 31].into_iter().try_for_each(|seed| random(device, seed, 6, (96, 32)))
}

/// Grids of one thread, of one threadgroup, and of many small ones.
fn small_random_control_flow(device: &Device) -> CaseResult {
    [((1, 1), 29), ((31, 31), 32), ((24, 1), 37)]
        .into_iter()
        .try_for_each(|(grid, seed)| random(device, seed, 3, grid))
}

/// Of macros without parameters, also within one another; the Metal driver expands them.
fn barriers_in_macros(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "rotate",
        "#define SYNC() elinvar::grid_barrier()
        #define STEP SYNC(); \\
            rounds += 1u;
        #define LAST do { elinvar::this_grid().sync(); } while (false)
        kernel void rotate(device uint* x [[buffer(0)]], device uint* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                           uint n [[threads_per_grid]]) {
            uint rounds = 0u;
            for (uint s = 0u; s < 5u; ++s) {
                y[(i + 1u) % n] = x[i];
                STEP
                x[i] = y[i] + 1u;
                LAST;
            }
            y[i] = rounds;
        }",
    )?;
    let first: Vec<u32> = (0..500).map(|i| i * i).collect();
    let (mut x, mut y) = (device.buffer_with_data(&first)?, device.buffer::<u32>(500)?);
    run(device, &kernel, Grid::threads(500).group(64), (&mut x, &mut y))?;
    expect_all(&x.to_vec()?, |i| first[(i + 495) % 500] + 5);
    expect_all(&y.to_vec()?, |_| 5);
    Ok(())
}
