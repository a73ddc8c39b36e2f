use elinvar_differential::{Kernel, check, check_text};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a.len() == 2 {
        println!("{:?}", check_text(&std::fs::read_to_string(&a[1]).unwrap()));
        return;
    }
    let seed: u64 = a[2].parse().unwrap();
    let k = if a[1] == "any" { Kernel::random(seed) } else { Kernel::indexed(seed) };
    if a.len() == 3 {
        println!("{}", k.source());
    } else {
        println!("{:?}", check(&[k]));
    }
}
