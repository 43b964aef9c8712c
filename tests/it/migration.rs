//! What other versions wrote: documents of older forms are read, and rewritten in the background; those of a newer form
//! are waited for.

mod golden;
mod newer;
mod older;

use mongodb::bson::{Document, doc};

/// Runs something in the database of a connection string.
fn in_mongo<T>(uri: &str, work: impl AsyncFnOnce(mongodb::Database) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(uri).await.expect("a good URI");
        work(client.default_database().expect("a database")).await
    })
}

/// Updates one document past its collection's validator.
#[track_caller]
fn update(uri: &str, collection: &str, which: Document, update: Document) {
    in_mongo(uri, async |mongo| {
        let command = doc! {
            "update": collection, "updates": [{ "q": which, "u": update }], "bypassDocumentValidation": true,
        };
        assert_eq!(mongo.run_command(command).await.expect("an answer").get_i32("n").expect("a number"), 1);
    });
}

/// The first document that matches.
fn found(uri: &str, collection: &str, which: Document) -> Option<Document> {
    in_mongo(uri, async |mongo| mongo.collection(collection).find_one(which).await.expect("an answer"))
}
