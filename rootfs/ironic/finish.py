"""Finish Ironic's tree at build time; run by the tree's own Python, `chroot TREE /usr/bin/python3 /finish.py`.

Removes what a running Ironic never reads, makes the empty database that the first start copies, and compiles every
module once, so that the box neither writes nor checks bytecode. Same inputs, same bytes.
"""

import compileall
import os
import py_compile
import shutil
import sqlite3
import subprocess
import sys

PACKAGES = '/usr/local/lib/python3.13/dist-packages'
STANDARD = '/usr/lib/python3.13'
DATABASE = '/usr/share/ironic/empty.sqlite'

# Whole directories by name inside PACKAGES.
UNUSED = {'tests', 'locale', 'include', 'testsuite', '__pycache__'}
# Files of Debian packages that came along as dependencies of packages, not of Ironic.
LEFTOVERS = (
    '/usr/share/doc', '/usr/share/man', '/usr/share/info', '/usr/share/locale', '/usr/share/lintian', '/usr/share/perl5',
    '/usr/share/debconf', '/usr/share/dpkg', '/usr/share/bug', '/usr/share/common-licenses', '/usr/share/gcc',
    '/usr/share/pixmaps', '/usr/share/applications', '/usr/share/python3', '/usr/lib/dpkg', '/usr/lib/valgrind',
    '/usr/sbin', '/var/lib/dpkg', '/var/cache', '/var/lib/apt', '/var/log', PACKAGES + '/bin',
    STANDARD + '/pydoc_data', STANDARD + '/ensurepip', STANDARD + '/_pyrepl', STANDARD + '/curses',
)
KEEP_BIN = {'python3', 'python3.13', 'xorriso', 'xorrisofs', 'ipmitool'}


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def trim():
    for path in LEFTOVERS:
        remove(path)
    for name in os.listdir('/usr/bin'):
        if name not in KEEP_BIN:
            remove(f'/usr/bin/{name}')
    for folder, names, files in os.walk(PACKAGES):
        for name in sorted(UNUSED.intersection(names)):
            remove(f'{folder}/{name}')
            names.remove(name)
        for name in files:
            # Type stubs, sources of compiled modules, and pip's records, which name the build machine's paths.
            if name.endswith(('.pyi', '.pyx', '.pxd', '.c', '.h', '.po')) or name in ('RECORD', 'direct_url.json'):
                os.unlink(f'{folder}/{name}')
    for name in ('oui.txt', 'iab.txt'):
        remove(f'{PACKAGES}/netaddr/eui/{name}')


def check_programs():
    """Ironic looks for them at its start, and does not start without: they must run in what is left of the tree."""
    for command in (['xorrisofs', '-version'], ['ipmitool', '-V']):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make_database():
    """The same schema that `ironic-dbsync upgrade` ends with, made in one step."""
    config = '/tmp/make-database.conf'
    with open(config, 'w') as file:
        file.write(f'[database]\nconnection = sqlite:///{DATABASE}\n')
    create = 'from ironic.command.dbsync import main; main()'
    subprocess.run([sys.executable, '-c', create, '--config-file', config, 'create_schema'], check=True)
    os.unlink(config)


def settle_database():
    """Write the database again with its tables and indexes in the order of their names: SQLAlchemy's order is random."""
    settled = DATABASE + '.settled'
    source, target = sqlite3.connect(DATABASE), sqlite3.connect(settled)
    select = "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name"
    for name, sql in source.execute(select, ('table',)).fetchall():
        target.execute(sql)
        for row in source.execute(f'SELECT * FROM "{name}" ORDER BY rowid'):
            target.execute(f'INSERT INTO "{name}" VALUES ({",".join("?" * len(row))})', row)
    for _, sql in source.execute(select, ('index',)).fetchall():
        target.execute(sql)
    target.commit()
    target.close()
    source.close()
    os.replace(settled, DATABASE)


def compile_all():
    """By hash, never checked: the files cannot change under a read-only root, and their times say nothing."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for folder in (STANDARD, PACKAGES):
        if not compileall.compile_dir(folder, quiet=1, force=True, invalidation_mode=mode):
            sys.exit(f'{folder}: a module does not compile, see the lines above')


def main():
    if os.environ.get('PYTHONHASHSEED') != '0':
        # HOME: stevedore would leave a cache there.
        clean = {'PATH': '/usr/bin', 'PYTHONHASHSEED': '0', 'HOME': '/tmp/home'}
        os.execve(sys.executable, [sys.executable, '-B', *sys.argv], clean)
    trim()
    check_programs()
    make_database()
    settle_database()
    compile_all()
    remove('/tmp/home')
    # Where the pod's volumes appear.
    for path in ('/run/firstlight/ironic', '/var/lib/ironic'):
        os.makedirs(path, exist_ok=True)


if __name__ == '__main__':
    main()
