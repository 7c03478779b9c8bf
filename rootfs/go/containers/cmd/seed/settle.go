package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// settleDatabase gives every record of a bolt file one time and writes the file anew, so that equal contents are equal
// bytes. Bolt places the pages of one transaction in the random order of a Go map; with a transaction for each key there
// is nothing left to order.
func settleDatabase(path string, at time.Time) (err error) {
	stamp, err := at.MarshalBinary()
	if err != nil {
		return err
	}
	old, err := bolt.Open(path, 0, nil)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	if err := old.Update(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error { return stampRecords(bucket, stamp) })
	}); err != nil {
		return fmt.Errorf("setting the times in %s: %w", path, err)
	}
	settled := path + ".settled"
	fresh, err := bolt.Open(settled, 0o644, &bolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	if err := errors.Join(bolt.Compact(fresh, old, 1), fresh.Sync(), fresh.Close()); err != nil {
		return fmt.Errorf("rewriting %s: %w", path, err)
	}
	return os.Rename(settled, path)
}

// stampRecords sets the two times that containerd keeps with each record, here and in all buckets below.
func stampRecords(bucket *bolt.Bucket, stamp []byte) error {
	for _, key := range []string{"createdat", "updatedat"} {
		if bucket.Get([]byte(key)) != nil {
			if err := bucket.Put([]byte(key), stamp); err != nil {
				return err
			}
		}
	}
	return bucket.ForEachBucket(func(name []byte) error { return stampRecords(bucket.Bucket(name), stamp) })
}
