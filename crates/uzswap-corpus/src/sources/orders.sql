pragma cache_size = -400000;
create table customer (id integer primary key, name text, mail text unique, city text);
create table orders (id integer primary key, customer integer, placed text, price real, state text, note text);
with recursive c(i) as (select 1 union all select i + 1 from c where i < 120000)
insert into customer select i, 'Customer ' || substr('AnnaBelaCarlDoraEmilFina', 1 + (i * 7 % 6) * 4, 4) || ' ' || i,
  'c' || (i * 7919 % 120011) || '@shop.example', substr('Bremen Dresden Essen  Fulda  Jena   ', 1 + (i % 5) * 7, 7) from c;
with recursive c(i) as (select 1 union all select i + 1 from c where i < 600000)
insert into orders select i, i * 7919 % 120000, datetime(1700000000 + i * 37, 'unixepoch'), round(i * 104729 % 99991 / 100.0, 2),
  case i % 3 when 0 then 'new' when 1 then 'paid' else 'sent' end, case when i % 5 = 0 then 'leave it with number ' || (i % 97) end from c;
create index orders_by_customer on orders (customer, placed);
create index orders_by_price on orders (price);
delete from orders where id % 11 = 0;
update orders set note = 'sent again' where id % 17 = 0;
select count(*), sum(price) from orders join customer on customer.id = orders.customer where city like 'Je%';
