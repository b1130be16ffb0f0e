//! Draws how the rate control behaves, for `docs/rate.md`: `-- plots`.

mod crowd;
mod fade;
mod join;
mod sensitivity;
mod timeline;

use std::fs;
use std::path::Path;

use report::SvgPicture;

/// Where the pictures are.
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rate");

/// Draws all pictures, and replaces the ones there are.
pub(super) fn draw() {
    fs::create_dir_all(PLACE).expect("the directory of the pictures can be made");
    write("fade", &fade::draw());
    write("join", &join::draw());
    write("crowd", &crowd::draw());
    for (name, picture) in sensitivity::draw() {
        write(name, &picture);
    }
}

fn write(name: &str, picture: &SvgPicture) {
    let file = Path::new(PLACE).join(name).with_extension("svg");
    let text = picture.file();
    fs::write(&file, &text).expect("the picture can be written");
    println!("  drew {name}.svg, {:.0} kB", text.len() as f64 / 1e3);
}
