//! What other versions wrote: documents of older forms are read, and rewritten in the background; those of a newer form
//! are waited for.

mod golden;
