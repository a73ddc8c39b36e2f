//! Compile a file and print its signatures and the IR of each kernel: `show FILE [KERNEL]`.
use elinvar_driver::Source;
fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().expect("a file");
    let kernel = args.next();
    let text = std::fs::read_to_string(&file).expect("readable");
    let t = std::time::Instant::now();
    let tool = elinvar_msl::Toolchain::find().expect("clang");
    eprintln!("find {:?}", t.elapsed());
    let mut source = Source::named(&file, text);
    if let Some(dir) = std::path::Path::new(&file).parent() {
        source = source.include_dir(dir);
    }
    let t = std::time::Instant::now();
    match elinvar_msl::Program::compile(&tool, &source) {
        Err(e) => {
            println!("{e}");
            std::process::exit(1)
        }
        Ok(p) => {
            eprintln!("compile {:?}", t.elapsed());
            for w in p.warnings() {
                println!("{w}");
            }
            for k in p.kernels() {
                if kernel.as_ref().is_some_and(|n| *n != k.name) {
                    continue;
                }
                println!("{k:#?}");
                let t = std::time::Instant::now();
                match p.ir(&k.name) {
                    Ok(ir) => println!("{ir}"),
                    Err(e) => println!("{e}"),
                }
                eprintln!("ir {:?}", t.elapsed());
            }
        }
    }
}
